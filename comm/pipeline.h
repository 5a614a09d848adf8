// Pipelines: ranks that hold consecutive parts of a network. A batch is cut into parts, and several are under way at
// once (Huang et al. 2019, "GPipe"; Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM").
//
// The network is cut into pieces, P·V of them for P ranks of V chunks each: piece k is chunk k / P of rank k % P. A
// rank's work is a list of moves. A move gives a tensor to a neighbouring piece: forward(k, part) its output to piece
// k + 1, backward(k, part) the gradient of its input to piece k - 1. All is known before a step begins, so a schedule
// is data: the trainer carries it out, `isobar mesh --pipeline` draws it, and the tests count in it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "comm/pipeline_options.h"

namespace isobar {

struct Move {
  enum class Kind : std::uint8_t { forward, backward } kind = Kind::forward;
  int chunk = 0, part = 0;
  friend bool operator==(const Move&, const Move&) = default;
};
using Moves = std::vector<Move>;

// Place `rank` of `ranks` (P) in a training step of `parts` parts (m). One chunk: 1F1B. First P - 1 - rank forward
// moves; then a forward and a backward one in turn; then the backward ones that are left. Several chunks: interleaved,
// with 2·(P - 1 - rank) + (V - 1)·P forward moves first. Error if m is no multiple of P then.
Moves pipeline_moves(int rank, int ranks, int parts, int chunks);
// The same for a validation: forward moves alone. m may be any number.
Moves forward_moves(int rank, int ranks, int parts, int chunks);

// A move of a rank, or an exchange with one other rank: a call in which it sends, receives, or does both.
struct PipelineStep {
  std::optional<Move> move = {};
  int peer = 0;
  std::optional<Move> send = {};     // the move of this rank that has made what is sent
  std::optional<Move> receive = {};  // the move of this rank that needs what is received
};
using PipelineSteps = std::vector<PipelineStep>;  // of one rank, in order

// The steps of every rank. An exchange follows the move that has made what is sent. Messages of two ranks to each other
// that are ready at the same time are one exchange. All ranks meet their exchanges in the order of one list, so none
// waits for ever, even if a send waits until the other rank receives.
std::vector<PipelineSteps> with_exchanges(const std::vector<Moves>& moves);
std::vector<PipelineSteps> training_steps(int ranks, int parts, int chunks);
std::vector<PipelineSteps> scoring_steps(int ranks, int parts, int chunks);

// When each move is made if a forward move of piece k takes work[k], a backward one twice that, and a message no time.
struct TimedMove {
  Move move;
  double begin = 0, end = 0;
};
struct PipelineTimeline {
  std::vector<std::vector<TimedMove>> ranks;
  double end = 0;  // of the last move

  double busy(std::size_t rank) const;
  double idle(std::size_t rank) const { return 1 - busy(rank) / end; }  // share of the time
  double idle() const;                                                  // of all ranks; even pieces: (P-1)/(V·m+P-1)
  // The max number of parts, over all chunks of a rank, that are between their forward and their backward move.
  int held(std::size_t rank) const;
};
// Error if a move waits for one that never comes. work: of each piece; empty: 1 each.
PipelineTimeline run_through(const std::vector<Moves>& moves, std::vector<double> work = {});

// A line a rank, a column a unit of time: "rank 0   F0 F1 B0 .. F2 B1". A backward move takes two columns. With several
// chunks a letter names the chunk: "F0a".
std::string draw(const PipelineTimeline& timeline);

// `work` of consecutive units as `pieces` pieces, none of them empty: the max sum of a piece is as small as it can be,
// then the sum of the squares. may_cut[i]: whether a piece may end behind unit i. Error if there are too few cuts.
std::vector<Part> balanced_pieces(std::span<const double> work, const std::vector<bool>& may_cut, std::int64_t pieces);

}  // namespace isobar
