#include "comm/pipeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

// The k-th forward move of a rank: P parts in chunk 0, the same P parts in chunk 1, ...; then the next P parts.
Move forward_move(int k, int ranks, int chunks) {
  if (chunks == 1) return {Move::Kind::forward, 0, k};
  const int round = ranks * chunks;
  return {Move::Kind::forward, k % round / ranks, k / round * ranks + k % ranks};
}

// The same from the last chunk to the first.
Move backward_move(int k, int ranks, int chunks) {
  const Move move = forward_move(k, ranks, chunks);
  return {Move::Kind::backward, chunks - 1 - move.chunk, move.part};
}

void check_place(int rank, int ranks, int parts, int chunks) {
  ISOBAR_CHECK(ranks >= 1 && rank >= 0 && rank < ranks && parts >= 1 && chunks >= 1, "pipeline: place ", rank, " of ",
               ranks, ", ", parts, " parts, ", chunks, " chunks");
}

// A move of any rank, by the number of its piece.
using PieceMove = std::tuple<Move::Kind, int, int>;  // kind, piece, part

class Clockwork {
 public:
  Clockwork(const std::vector<Moves>& moves, std::vector<double> work)
      : moves_(moves), ranks_(static_cast<int>(moves.size())), work_(std::move(work)) {
    int chunks = 0;
    for (const Moves& list : moves)
      for (const Move& move : list) chunks = std::max(chunks, move.chunk + 1);
    pieces_ = ranks_ * chunks;
    if (work_.empty()) work_.assign(static_cast<std::size_t>(pieces_), 1.0);
    ISOBAR_CHECK(std::ssize(work_) == pieces_, "pipeline: the work of ", work_.size(), " pieces is given, of ",
                 pieces_);
  }

  PipelineTimeline run() {
    PipelineTimeline timeline{.ranks = std::vector<std::vector<TimedMove>>(moves_.size())};
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (int rank = 0; rank < ranks_; ++rank)
        while (make_next(rank, timeline.ranks[static_cast<std::size_t>(rank)])) has_moved = true;
    }
    for (std::size_t r = 0; r < moves_.size(); ++r) {
      ISOBAR_CHECK(timeline.ranks[r].size() == moves_[r].size(), "pipeline: rank ", r, " waits for ever before move ",
                   timeline.ranks[r].size());
      if (!timeline.ranks[r].empty()) timeline.end = std::max(timeline.end, timeline.ranks[r].back().end);
    }
    return timeline;
  }

 private:
  // What a move needs: the input of its piece; a backward move also its own forward move.
  std::vector<PieceMove> needs(Move::Kind kind, int piece, int part) const {
    std::vector<PieceMove> all;
    if (kind == Move::Kind::forward && piece > 0) all.emplace_back(kind, piece - 1, part);
    if (kind == Move::Kind::backward) {
      all.emplace_back(Move::Kind::forward, piece, part);
      if (piece + 1 < pieces_) all.emplace_back(kind, piece + 1, part);
    }
    return all;
  }

  // Makes the next move of the rank if all that it needs is there.
  bool make_next(int rank, std::vector<TimedMove>& made) {
    const Moves& list = moves_[static_cast<std::size_t>(rank)];
    if (made.size() == list.size()) return false;
    const Move& move = list[made.size()];
    const int piece = move.chunk * ranks_ + rank;
    double begin = made.empty() ? 0 : made.back().end;
    for (const PieceMove& need : needs(move.kind, piece, move.part)) {
      const auto done = ends_.find(need);
      if (done == ends_.end()) return false;
      begin = std::max(begin, done->second);
    }
    const double end = begin + work_[static_cast<std::size_t>(piece)] * (move.kind == Move::Kind::forward ? 1 : 2);
    made.push_back({move, begin, end});
    ends_[{move.kind, piece, move.part}] = end;
    return true;
  }

  const std::vector<Moves>& moves_;
  int ranks_, pieces_ = 0;
  std::vector<double> work_;
  std::map<PieceMove, double> ends_;
};

// One message, or two messages of two ranks to each other. first < second.
struct Rendezvous {
  double time = 0;
  int first = 0, second = 0;
  std::optional<Move> of_first, of_second;    // the moves whose results are sent
  std::optional<Move> for_first, for_second;  // the moves that need them

  // Meetings of one time: of distinct pairs where possible, so that they do not wait for each other in a chain.
  std::tuple<double, int, int, int> order() const { return {time, first % 2, first, second}; }
};

std::vector<Rendezvous> all_rendezvous(const PipelineTimeline& timeline, int pieces) {
  const int ranks = static_cast<int>(timeline.ranks.size());
  std::map<std::tuple<double, int, int>, Rendezvous> by_time;
  for (int rank = 0; rank < ranks; ++rank)
    for (const auto& [move, begin, end] : timeline.ranks[static_cast<std::size_t>(rank)]) {
      const int piece = move.chunk * ranks + rank;
      const int next = piece + (move.kind == Move::Kind::forward ? 1 : -1);
      if (next < 0 || next >= pieces) continue;
      const int peer = next % ranks;
      const auto [first, second] = std::minmax(rank, peer);
      Rendezvous& meeting = by_time[{end, first, second}];
      meeting.time = end;
      meeting.first = first;
      meeting.second = second;
      (rank == first ? meeting.of_first : meeting.of_second) = move;
      (rank == first ? meeting.for_second : meeting.for_first) = Move{move.kind, next / ranks, move.part};
    }
  std::vector<Rendezvous> all;
  for (const auto& [time, meeting] : by_time) all.push_back(meeting);
  std::ranges::sort(all, {}, &Rendezvous::order);
  return all;
}

std::vector<Moves> moves_of_all(int ranks, int parts, int chunks, Moves (*of_rank)(int, int, int, int)) {
  std::vector<Moves> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(of_rank(rank, ranks, parts, chunks));
  return all;
}

std::string label_of(const Move& move, bool has_chunks) {
  return concat(move.kind == Move::Kind::forward ? 'F' : 'B', move.part,
                has_chunks ? std::string(1, static_cast<char>('a' + move.chunk % 26)) : "");
}

// The least max sum of `pieces` pieces of the first i units, for every i; a piece must not exceed `limit`. The second
// number: the least sum of squares under it.
class Balance {
 public:
  Balance(std::span<const double> work, const std::vector<bool>& may_cut, std::int64_t pieces)
      : work_(work), may_cut_(may_cut), pieces_(static_cast<std::size_t>(pieces)) {}

  std::vector<Part> cut() const {
    const double most = best(std::numeric_limits<double>::infinity(), /*by_largest=*/true).back().back().value;
    ISOBAR_CHECK(std::isfinite(most), "pipeline: ", work_.size(), " stages cannot be cut into ", pieces_, " pieces");
    const Table table = best(most, /*by_largest=*/false);
    std::vector<Part> parts(pieces_);
    auto end = static_cast<std::int64_t>(work_.size());
    for (std::size_t piece = pieces_; piece > 0; --piece) {
      const std::int64_t begin = table[piece][static_cast<std::size_t>(end)].begin;
      parts[piece - 1] = {begin, end};
      end = begin;
    }
    return parts;
  }

 private:
  struct Cell {
    double value = std::numeric_limits<double>::infinity();
    std::int64_t begin = 0;  // of the last piece
  };
  using Table = std::vector<std::vector<Cell>>;  // [pieces + 1][units + 1]

  bool may_end(std::size_t end) const { return end == work_.size() || may_cut_[end - 1]; }

  Table best(double limit, bool by_largest) const {
    Table table(pieces_ + 1, std::vector<Cell>(work_.size() + 1));
    table[0][0].value = 0;
    for (std::size_t piece = 1; piece <= pieces_; ++piece)
      for (std::size_t end = 1; end <= work_.size(); ++end) {
        if (!may_end(end)) continue;
        double sum = 0;
        for (std::size_t begin = end; begin-- > 0;) {
          sum += work_[begin];
          if (sum > limit) break;
          const double before = table[piece - 1][begin].value;
          const double value = by_largest ? std::max(before, sum) : before + sum * sum;
          if (value < table[piece][end].value) table[piece][end] = {value, static_cast<std::int64_t>(begin)};
        }
      }
    return table;
  }

  std::span<const double> work_;
  const std::vector<bool>& may_cut_;
  std::size_t pieces_;
};

}  // namespace

Moves pipeline_moves(int rank, int ranks, int parts, int chunks) {
  check_place(rank, ranks, parts, chunks);
  ISOBAR_CHECK(chunks == 1 || parts % ranks == 0, "--pipeline-chunks ", chunks, ": the ", parts,
               " parts of a batch (grad_accumulation) are no multiple of the ", ranks, " ranks of a pipeline");
  const int all = parts * chunks, behind = ranks - 1 - rank;
  const int first = std::min(all, chunks == 1 ? behind : 2 * behind + (chunks - 1) * ranks);
  Moves moves;
  for (int k = 0; k < first; ++k) moves.push_back(forward_move(k, ranks, chunks));
  for (int k = 0; k < all; ++k) {
    if (first + k < all) moves.push_back(forward_move(first + k, ranks, chunks));
    moves.push_back(backward_move(k, ranks, chunks));
  }
  return moves;
}

Moves forward_moves(int rank, int ranks, int parts, int chunks) {
  check_place(rank, ranks, parts, chunks);
  Moves moves;
  for (int first = 0; first < parts; first += ranks)
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int part = first; part < std::min(parts, first + ranks); ++part)
        moves.push_back({Move::Kind::forward, chunk, part});
  return moves;
}

PipelineTimeline run_through(const std::vector<Moves>& moves, std::vector<double> work) {
  return Clockwork(moves, std::move(work)).run();
}

// A rank's list has the moves in the order in which they begin and the exchanges in the order of their times; of one
// time the exchanges come first. So the lists of all ranks are parts of one list, and the first exchange in it that has
// not taken place can: its two ranks have nothing left to do before it.
std::vector<PipelineSteps> with_exchanges(const std::vector<Moves>& moves) {
  const int ranks = static_cast<int>(moves.size());
  const PipelineTimeline timeline = run_through(moves);
  int chunks = 0;
  for (const Moves& list : moves)
    for (const Move& move : list) chunks = std::max(chunks, move.chunk + 1);
  std::vector<PipelineSteps> steps(moves.size());
  std::vector<std::size_t> made(moves.size(), 0);
  const auto move_until = [&](int rank, double time) {
    const auto r = static_cast<std::size_t>(rank);
    const std::vector<TimedMove>& list = timeline.ranks[r];
    for (; made[r] < list.size() && list[made[r]].begin < time; ++made[r])
      steps[r].push_back({.move = list[made[r]].move});
  };
  for (const Rendezvous& meeting : all_rendezvous(timeline, ranks * chunks)) {
    move_until(meeting.first, meeting.time);
    move_until(meeting.second, meeting.time);
    steps[static_cast<std::size_t>(meeting.first)].push_back(
        {.peer = meeting.second, .send = meeting.of_first, .receive = meeting.for_first});
    steps[static_cast<std::size_t>(meeting.second)].push_back(
        {.peer = meeting.first, .send = meeting.of_second, .receive = meeting.for_second});
  }
  for (int rank = 0; rank < ranks; ++rank) move_until(rank, std::numeric_limits<double>::infinity());
  return steps;
}

std::vector<PipelineSteps> training_steps(int ranks, int parts, int chunks) {
  return with_exchanges(moves_of_all(ranks, parts, chunks, pipeline_moves));
}

std::vector<PipelineSteps> scoring_steps(int ranks, int parts, int chunks) {
  return with_exchanges(moves_of_all(ranks, parts, chunks, forward_moves));
}

double PipelineTimeline::busy(std::size_t rank) const {
  double sum = 0;
  for (const TimedMove& timed : ranks[rank]) sum += timed.end - timed.begin;
  return sum;
}

double PipelineTimeline::idle() const {
  double sum = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) sum += idle(rank);
  return sum / static_cast<double>(ranks.size());
}

int PipelineTimeline::held(std::size_t rank) const {
  int now = 0, most = 0;
  for (const TimedMove& timed : ranks[rank]) {
    now += timed.move.kind == Move::Kind::forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

std::string draw(const PipelineTimeline& timeline) {
  bool has_chunks = false;
  std::size_t width = 0;
  for (const auto& rank : timeline.ranks)
    for (const TimedMove& timed : rank) has_chunks |= timed.move.chunk > 0;
  for (const auto& rank : timeline.ranks)
    for (const TimedMove& timed : rank) width = std::max(width, label_of(timed.move, has_chunks).size() + 1);
  std::string text;
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
    std::string line = concat("rank ", r);
    line.resize(9, ' ');
    for (const TimedMove& timed : timeline.ranks[r]) {
      line.resize(9 + static_cast<std::size_t>(std::llround(timed.begin)) * width, ' ');
      line += label_of(timed.move, has_chunks);
    }
    text += line + '\n';
  }
  return text;
}

std::vector<Part> balanced_pieces(std::span<const double> work, const std::vector<bool>& may_cut, std::int64_t pieces) {
  ISOBAR_CHECK(pieces >= 1 && may_cut.size() == work.size(), "pipeline: ", pieces, " pieces of ", work.size(),
               " stages");
  return Balance(work, may_cut, pieces).cut();
}

}  // namespace isobar
