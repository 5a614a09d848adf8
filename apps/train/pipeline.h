// Carries out the moves of a pipeline (comm/pipeline.h) on one rank: for the passes of an update, and for a validation,
// which makes forward moves only.
//
// A chunk's tape lives from the forward move of a part to its backward move. What comes from the stage before is a leaf
// of that tape; its gradient is what goes back. On a GPU the exchanges run on a stream beside that of the passes, and
// a pass waits for what it needs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "apps/train/passes.h"
#include "apps/train/step_plan.h"
#include "comm/parallel.h"
#include "comm/pipeline.h"
#include "engine/stream.h"
#include "engine/tape.h"
#include "models/staged_task.h"

namespace isobar {

// Error where a pipeline cannot carry out this task, or cut batches of so many parts.
void check_pipeline(const Task& task, const BatchOptions& batch, const Parallel& parallel);

class Pipeline {
 public:
  // Refers to task and ranks. The task's network has its share (Network::share), or is whole on one rank.
  Pipeline(const StagedTask& task, const Parallel& parallel, Device device);

  using BatchOfPart = std::function<Batch(std::int64_t part)>;
  // Forward and backward of all parts, as run_in_turn; batch_of is called for every part in turn.
  void train(Passes& passes, const BatchOfPart& batch_of, bool all_ranks_have_last, const ReadAhead& read_ahead);

  // Forward of batches, in which nothing is recorded. On the last stage `score` gets what the network gives for each;
  // one without samples is left out.
  using Score = std::function<void(const Tensor& output, const Batch& batch)>;
  void score(std::span<const Batch> batches, const Score& score);
  // As many batches for score() keep all ranks at work most of the time.
  std::int64_t batches_at_once() const { return kScoredRounds * parallel_.pp.size(); }

  // Host seconds that this rank has waited in exchanges, since it was made. On a GPU exchanges do not wait on the host.
  double waited_seconds() const { return waited_; }

 private:
  static constexpr std::int64_t kScoredRounds = 4;

  // A part in one chunk, between its forward and its backward move.
  struct UnderWay {
    Tape tape;
    Tensor input;   // the leaf; undefined in the first piece
    Tensor output;  // what goes on to the next piece, or the loss
  };
  // An exchange that may still run.
  struct Running {
    Pending pending;
    Tensor sent;
  };
  using Place = std::pair<int, int>;  // chunk, part

  Tensor input_of(const Move& move, const Batch& batch);
  // left_out: the number of the chunk's last stages that are not run.
  Tensors run_chunk(int chunk, const Tensor& input, const Batch& batch, const Pass& pass, std::int64_t left_out) const;
  bool is_first_piece(int chunk) const { return piece_of(chunk) == 0; }
  bool is_last_piece(int chunk) const { return piece_of(chunk) + 1 == pieces_; }
  int piece_of(int chunk) const;
  Part stages_of(int chunk) const;

  void exchange(const PipelineStep& step, const BatchOfPart& batch_of);
  Tensor room_for(const Move& move, const BatchOfPart& batch_of);
  Tensor take_arrived(const Move& move);
  void finish_exchanges(std::size_t until);  // the first `until` of those that were begun
  void forward(const Move& move, Passes& passes, const Batch& batch);
  void backward(const Move& move, Passes& passes, bool begin_sums);
  const PipelineSteps& steps_of(std::int64_t parts, bool with_backward);

  const StagedTask& task_;
  const Parallel& parallel_;
  const PipelineShare* share_;  // null: one rank, one piece
  int pieces_ = 1;
  SideStream side_;
  std::map<std::pair<std::int64_t, bool>, PipelineSteps> steps_;  // by parts, with backward moves
  std::map<Place, UnderWay> under_way_;
  std::map<Place, Tensor> outputs_, input_gradients_;                               // that wait to be sent
  std::map<std::pair<Move::Kind, Place>, std::pair<Tensor, std::size_t>> arrived_;  // and the number of its exchange
  std::deque<Running> running_;
  std::size_t begun_ = 0, finished_ = 0;  // exchanges
  double waited_ = 0;
};

// The plan of an update that ranks of a pipeline make together.
std::unique_ptr<StepPlan> make_pipeline_plan(Pipeline& pipeline);

}  // namespace isobar
