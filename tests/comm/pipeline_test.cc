// The schedules of a pipeline: which moves each rank makes, who waits for whom, and what that costs. And the groups of
// ranks that a pipeline needs.
#include "comm/pipeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/parallel.h"
#include "comm/thread_ranks.h"
#include "tests/harness/findings.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
constexpr auto kForward = Move::Kind::forward, kBackward = Move::Kind::backward;

// "F0 F1a B0": as draw() names moves; without letters: chunk 0.
Moves moves_of(const std::string& text) {
  Moves moves;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    const bool has_chunk = word.back() >= 'a';
    moves.push_back(
        {word[0] == 'F' ? kForward : kBackward, has_chunk ? word.back() - 'a' : 0, std::stoi(word.substr(1))});
  }
  return moves;
}

struct PipelineSize {
  int ranks, parts, chunks;
};

std::string text_of(const PipelineSize& size) {
  return concat("P ", size.ranks, ", m ", size.parts, ", V ", size.chunks);
}

// P 1 to 5 and 8, V 1 to 3, parts 1 to 8 or the first multiples of P.
std::vector<PipelineSize> many_sizes() {
  std::vector<PipelineSize> all;
  for (const int ranks : {1, 2, 3, 4, 5, 8})
    for (const int chunks : {1, 2, 3})
      for (int i = 1; i <= (chunks == 1 ? 8 : 3); ++i)
        if (ranks > 1 || chunks == 1) all.push_back({ranks, chunks == 1 ? i : i * ranks, chunks});
  return all;
}

std::vector<Moves> moves_of_all_ranks(const PipelineSize& size) {
  std::vector<Moves> all;
  for (int rank = 0; rank < size.ranks; ++rank)
    all.push_back(pipeline_moves(rank, size.ranks, size.parts, size.chunks));
  return all;
}

using PipelineMessage = std::tuple<Move::Kind, int, int>;  // kind, piece that needs it, part

// Carries the steps out as ranks do that wait for each other in every exchange. Returns what was wrong.
std::string carry_out(const std::vector<PipelineSteps>& steps, int chunks, int& messages) {
  const int ranks = static_cast<int>(steps.size()), pieces = ranks * chunks;
  std::vector<std::size_t> at(steps.size(), 0);
  std::vector<std::set<PipelineMessage>> arrived(steps.size()), ready(steps.size());
  const auto make_moves = [&](int rank) -> std::string {
    const auto r = static_cast<std::size_t>(rank);
    for (; at[r] < steps[r].size() && steps[r][at[r]].move; ++at[r]) {
      const Move& move = *steps[r][at[r]].move;
      const int piece = move.chunk * ranks + rank;
      const bool needs = move.kind == kForward ? piece > 0 : piece + 1 < pieces;
      if (needs && arrived[r].erase({move.kind, piece, move.part}) == 0)
        return concat("rank ", rank, ": part ", move.part, " of piece ", piece, " has not arrived");
      const int next = piece + (move.kind == kForward ? 1 : -1);
      if (next >= 0 && next < pieces) ready[r].insert({move.kind, next, move.part});
    }
    return "";
  };
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (int rank = 0; rank < ranks; ++rank) {
      if (const std::string wrong = make_moves(rank); !wrong.empty()) return wrong;
      const auto r = static_cast<std::size_t>(rank);
      if (at[r] == steps[r].size()) continue;
      const PipelineStep& mine = steps[r][at[r]];
      const auto p = static_cast<std::size_t>(mine.peer);
      if (const std::string wrong = make_moves(mine.peer); !wrong.empty()) return wrong;
      if (at[p] == steps[p].size() || steps[p][at[p]].peer != rank) continue;
      const PipelineStep& theirs = steps[p][at[p]];
      for (const auto& [from, to, sent, received, place] : {std::tuple(r, p, mine.send, theirs.receive, mine.peer),
                                                            std::tuple(p, r, theirs.send, mine.receive, rank)}) {
        if (sent.has_value() != received.has_value())
          return concat("ranks ", rank, " and ", mine.peer, ": one is mute");
        if (!sent) continue;
        const PipelineMessage message{received->kind, received->chunk * ranks + place, received->part};
        if (ready[from].erase(message) == 0 || sent->part != received->part || sent->kind != received->kind)
          return concat("rank ", from, " sends what is not ready");
        arrived[to].insert(message);
        ++messages;
      }
      ++at[r];
      ++at[p];
      has_moved = true;
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (at[r] != steps[r].size()) return concat("rank ", rank, " waits for ever");
    if (!ready[r].empty() || !arrived[r].empty()) return concat("rank ", rank, ": a message is left over");
  }
  return "";
}

}  // namespace

TEST_CASE("pipeline: the lists of the papers") {
  // Narayanan et al. 2021, figure 4, of 4 ranks and 8 parts.
  CHECK(pipeline_moves(0, 4, 8, 1) == moves_of("F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"));
  CHECK(pipeline_moves(2, 4, 8, 1) == moves_of("F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7"));
  CHECK(pipeline_moves(3, 4, 8, 1) == moves_of("F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"));
  CHECK(pipeline_moves(0, 4, 2, 1) == moves_of("F0 F1 B0 B1"));
  // Interleaved, of 2 ranks with 2 chunks and 4 parts, by hand.
  CHECK(pipeline_moves(0, 2, 4, 2) == moves_of("F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a"));
  CHECK(pipeline_moves(1, 2, 4, 2) == moves_of("F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a"));
  CHECK(forward_moves(1, 2, 3, 2) == moves_of("F0a F1a F0b F1b F2a F2b"));
  // One rank: forward and backward of every part in turn.
  CHECK(pipeline_moves(0, 1, 3, 1) == moves_of("F0 B0 F1 B1 F2 B2"));
}

TEST_CASE("pipeline: every list has each move once, and the gradients of a chunk add up in the order of the parts") {
  for (const PipelineSize& size : many_sizes())
    for (const Moves& moves : moves_of_all_ranks(size)) {
      INFO(text_of(size));
      std::map<std::pair<Move::Kind, int>, std::vector<int>> parts;  // by kind and chunk
      std::set<std::pair<int, int>> passed;                          // forward
      for (const Move& move : moves) {
        parts[{move.kind, move.chunk}].push_back(move.part);
        if (move.kind == kForward) passed.insert({move.chunk, move.part});
        CHECK(passed.contains({move.chunk, move.part}));
      }
      CHECK(std::ssize(parts) == 2 * size.chunks);
      for (const auto& [of, list] : parts) {
        CHECK(std::ssize(list) == size.parts);
        for (std::size_t i = 0; i < list.size(); ++i) CHECK(list[i] == static_cast<int>(i));
      }
    }
}

TEST_CASE("pipeline: even pieces are idle for (P-1)/(V·m+P-1) of the time, on every rank") {
  for (const PipelineSize& size : many_sizes()) {
    INFO(text_of(size));
    const PipelineTimeline timeline = run_through(moves_of_all_ranks(size));
    const double expected = (size.ranks - 1.0) / (size.chunks * size.parts + size.ranks - 1.0);
    CHECK(std::abs(timeline.idle() - expected) < 1e-14);
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      CHECK(std::abs(timeline.idle(rank) - expected) < 1e-14);
      const int behind = size.ranks - 1 - static_cast<int>(rank);
      if (size.chunks == 1) CHECK(timeline.held(rank) == std::min(size.parts, behind + 1));
      // Interleaved (Narayanan et al., 2021, section 2.2): a rank begins with 2 behind + (V - 1) P forward passes.
      if (size.chunks > 1 && size.parts > size.ranks)
        CHECK(timeline.held(rank) ==
              std::min(size.chunks * size.parts, 2 * behind + (size.chunks - 1) * size.ranks + 1));
    }
  }
}

TEST_CASE("pipeline: uneven pieces wait for the slowest, counted by hand") {
  // F0 F1 B0 B1 on rank 0, F0 B0 F1 B1 on rank 1, which takes 3 forward and 6 backward: 1 + 2·9 + 2 = 21 in all.
  const PipelineTimeline timeline = run_through(moves_of_all_ranks({2, 2, 1}), {1, 3});
  CHECK(timeline.end == 21);
  CHECK(timeline.busy(0) == 6);
  CHECK(timeline.busy(1) == 18);
  CHECK(timeline.idle(1) == 1 - 18.0 / 21);
  CHECK_THROWS_WITH(run_through(moves_of_all_ranks({2, 2, 1}), {1}), "pipeline: the work of 1 pieces is given, of 2");
  CHECK_THROWS_WITH(run_through({moves_of("F0 B0"), moves_of("B0 F0")}),
                    "pipeline: rank 0 waits for ever before move 1");
}

TEST_CASE("pipeline: ranks that wait in every exchange do not wait for ever, and each message goes over once") {
  for (const PipelineSize& size : many_sizes()) {
    INFO(text_of(size));
    int messages = 0;
    CHECK(carry_out(training_steps(size.ranks, size.parts, size.chunks), size.chunks, messages) == "");
    CHECK(messages == 2 * (size.ranks * size.chunks - 1) * size.parts);
  }
  for (const int ranks : {1, 2, 3, 4})
    for (const int chunks : {1, 2})
      for (int parts = 1; parts <= 9; ++parts) {
        if (ranks == 1 && chunks > 1) continue;
        INFO(text_of({ranks, parts, chunks}));
        int messages = 0;
        CHECK(carry_out(scoring_steps(ranks, parts, chunks), chunks, messages) == "");
        CHECK(messages == (ranks * chunks - 1) * parts);
      }
}

TEST_CASE("pipeline: in the steady state a send and a receive of two ranks are one call") {
  int paired = 0, single = 0;
  const std::vector<PipelineSteps> of_ranks = training_steps(4, 16, 1);
  for (const PipelineStep& step : of_ranks[1])
    if (!step.move) (step.send && step.receive ? paired : single) += 1;
  CHECK(paired > single);
}

TEST_CASE("pipeline: the drawing") {
  CHECK(draw(run_through(moves_of_all_ranks({2, 3, 1}))) ==
        "rank 0   F0 F1       B0    F2 B1       B2\n"
        "rank 1      F0 B0    F1 B1    F2 B2\n");
  CHECK_THAT(draw(run_through(moves_of_all_ranks({2, 2, 2}))), ContainsSubstring("rank 0   F0a F1a F0b F1b"));
  // Moves stand where they begin, in columns as wide as the longest name.
  CHECK_THAT(draw(run_through(moves_of_all_ranks({2, 11, 1}))),
             ContainsSubstring("rank 0   F0  F1          B0      F2  B1 "));
}

TEST_CASE("pipeline: balanced pieces are the best of all cuts") {
  std::uint32_t state = 7;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };  // Numerical Recipes
  for (int round = 0; round < 60; ++round) {
    const std::size_t units = 1 + next() % 9;
    std::vector<double> work;
    std::vector<bool> may_cut;
    for (std::size_t i = 0; i < units; ++i) {
      work.push_back(1 + next() % 7);
      may_cut.push_back(next() % 4 > 0);
    }
    std::map<std::int64_t, std::pair<double, double>> best;  // by the number of pieces: max, sum of squares
    for (std::uint32_t cuts = 0; cuts < 1u << (units - 1); ++cuts) {
      double largest = 0, squares = 0, sum = 0;
      std::int64_t pieces = 1;
      bool is_allowed = true;
      for (std::size_t i = 0; i < units; ++i) {
        sum += work[i];
        if (i + 1 < units && (cuts >> i & 1) == 0) continue;
        if (i + 1 < units) is_allowed &= may_cut[i], ++pieces;
        largest = std::max(largest, sum);
        squares += sum * sum;
        sum = 0;
      }
      if (!is_allowed) continue;
      const auto [found, is_new] = best.try_emplace(pieces, largest, squares);
      if (!is_new) found->second = std::min(found->second, {largest, squares});
    }
    for (const auto& [pieces, expected] : best) {
      const std::vector<Part> cut = balanced_pieces(work, may_cut, pieces);
      REQUIRE(std::ssize(cut) == pieces);
      double largest = 0, squares = 0;
      std::int64_t at = 0;
      for (const Part& piece : cut) {
        CHECK(piece.begin == at);
        CHECK(piece.size() > 0);
        double sum = 0;
        for (; at < piece.end; ++at) sum += work[static_cast<std::size_t>(at)];
        largest = std::max(largest, sum);
        squares += sum * sum;
      }
      CHECK(at == std::ssize(work));
      CHECK(std::pair(largest, squares) == expected);
    }
    CHECK_THROWS_WITH(balanced_pieces(work, may_cut, best.rbegin()->first + 1),
                      ContainsSubstring("cannot be cut into"));
  }
}

TEST_CASE("pipeline: what cannot be cut is told with its numbers") {
  const std::vector<double> work{1, 2, 3};
  const std::vector<bool> anywhere(3, true);
  CHECK_THROWS_WITH(balanced_pieces(work, anywhere, 4), "pipeline: 3 stages cannot be cut into 4 pieces");
  CHECK_THROWS_WITH(balanced_pieces(work, anywhere, 0), "pipeline: 0 pieces of 3 stages");
  CHECK_THROWS_WITH(balanced_pieces(work, std::vector<bool>(2, true), 1), "pipeline: 1 pieces of 3 stages");
}

TEST_CASE("pipeline: options, and what is none") {
  CHECK(pipeline_options(2, "balanced").split == PipelineSplit::balanced);
  CHECK(pipeline_options(2, "even").split == PipelineSplit::even);
  CHECK(pipeline_options(1, "4,4,3").blocks == std::vector<std::int64_t>{4, 4, 3});
  CHECK(to_text(pipeline_options(2, "4,4,3,1")) == "2 chunks, split 4,4,3,1");
  CHECK(to_text(PipelineOptions{}) == "1 chunk, split balanced");
  CHECK(to_text(pipeline_options(3, "even")) == "3 chunks, split even");
  CHECK(pipeline_options(1, "1048576,0").blocks == std::vector<std::int64_t>{1048576, 0});
  for (const char* split : {"", "odd", "4,", "4,,3", "4,-1", "4.5,3", "4,3x", " ", "1048577", "99999999999999999999"})
    CHECK_THROWS_WITH(
        pipeline_options(1, split),
        concat("--pipeline-split ", split, ": balanced, even, or the number of blocks of each piece, \"4,4,3\""));
  for (const auto& moves : {pipeline_moves, forward_moves}) {
    CHECK_THROWS_WITH(moves(4, 4, 8, 1), "pipeline: place 4 of 4, 8 parts, 1 chunks");
    CHECK_THROWS_WITH(moves(-1, 4, 8, 1), "pipeline: place -1 of 4, 8 parts, 1 chunks");
    CHECK_THROWS_WITH(moves(0, 4, 0, 1), "pipeline: place 0 of 4, 0 parts, 1 chunks");
    CHECK_THROWS_WITH(moves(0, 4, 8, 0), "pipeline: place 0 of 4, 8 parts, 0 chunks");
  }
  CHECK_THROWS_WITH(pipeline_moves(0, 4, 6, 2),
                    "--pipeline-chunks 2: the 6 parts of a batch (grad_accumulation) are no multiple of the 4 ranks of "
                    "a pipeline");
}

TEST_CASE("parallel: neighbours of a pipeline, and both of its ends") {
  for (const MeshSizes sizes :
       {MeshSizes{.pp = 2}, MeshSizes{.pp = 3}, MeshSizes{.pp = 4}, MeshSizes{.pp = 5}, MeshSizes{.dp = 2, .pp = 2},
        MeshSizes{.tp = 2, .pp = 3}, MeshSizes{.dp = 2, .pp = 3}, MeshSizes{.dp = 2, .tp = 2, .pp = 2}})
    for (const char* order : {"tp-cp-dp", "pp-tp-cp-dp"})
      for (const std::int64_t shards : {std::int64_t{1}, ExchangeOptions::kAll}) {
        INFO(concat("dp ", sizes.dp, ", tp ", sizes.tp, ", pp ", sizes.pp, ", order ", order, ", shards ", shards));
        testing::Findings findings;
        run_ranks({.ranks = static_cast<int>(sizes.ranks())}, [&](const Communicator& world) {
          const ExchangeOptions exchange{.shards = shards};
          const Parallel parallel = Parallel::start(world, sizes, order, exchange);
          const int place = parallel.pp.rank(), places = parallel.pp.size();
          findings.expect(places == sizes.pp && place == parallel.mesh.coordinate("pp", world.rank()), "pp");
          findings.expect(parallel.stage.size() == sizes.dp * sizes.tp, "the ranks of a stage");
          findings.expect(parallel.samples.size() == sizes.dp * sizes.pp, "dp x pp");
          findings.expect(parallel.ranks_with_loss() == sizes.dp * sizes.tp, "ranks with a loss");
          // Each gives its number to the next place, and gets that of the one before. The link behind place l is used
          // in turn l % 2; of an odd number of places the last link has a turn of its own.
          const std::vector<std::int64_t> line = parallel.mesh.group_of(world.rank(), "pp");
          const int next = (place + 1) % places, previous = (place + places - 1) % places;
          const auto turn_of = [&](int link) { return places % 2 == 1 && link == places - 1 ? 2 : link % 2; };
          for (int turn = 0; turn < 3; ++turn) {
            const Tensor number = Tensor::zeros({1}, DType::fp64, Device{});
            number.data_as<double>()[0] = static_cast<double>(world.rank());
            if (turn_of(place) == turn)
              parallel.link_to(next).send_receive(number, parallel.rank_in_link(next), {}, Call::kNoRank);
            if (turn_of(previous) != turn) continue;
            parallel.link_to(previous).send_receive({}, Call::kNoRank, number, parallel.rank_in_link(previous));
            findings.expect(number.item() == static_cast<double>(line[static_cast<std::size_t>(previous)]),
                            concat("rank ", world.rank(), " got ", number.item()));
          }
          const bool is_end = place == 0 || place == places - 1;
          const std::int64_t own = parallel.tokens.size();
          findings.expect(parallel.tied_tokens.size() == (is_end ? 2 * own : 1), "both ends");
          findings.expect(parallel.tied_stage.size() == (is_end ? 2 * own * sizes.tp : 1), "both ends, with tp");
          double ends = is_end ? 1 : 0;
          parallel.tied_tokens.all_reduce({&ends, 1});
          findings.expect(ends == static_cast<double>(is_end ? 2 * own : 0), "the ranks at both ends");
          const Parallel imagined = Parallel::imagined(world.rank(), sizes, order, exchange);
          for (const auto group :
               {&Parallel::pp, &Parallel::stage, &Parallel::samples, &Parallel::next, &Parallel::previous,
                &Parallel::tied_tokens, &Parallel::tied_stage, &Parallel::tied_shards, &Parallel::tied_wide_shards}) {
            const Communicator &real = parallel.*group, &other = imagined.*group;
            findings.expect(real.size() == other.size() && real.rank() == other.rank() && real.name() == other.name(),
                            concat(real.name(), " and the imagined ", other.name()));
          }
          findings.expect(world.formed() == imagined.world.formed(), "the number of groups");
        });
        CHECK(findings.wrong() == "");
      }
}

TEST_CASE("the mesh of a pipeline: pp varies slowest unless the order says otherwise") {
  const Mesh mesh({.dp = 2, .tp = 2, .pp = 3}, "tp-cp-dp");
  CHECK(mesh.world_size() == 12);
  CHECK(mesh.group_of(1, "pp") == std::vector<std::int64_t>{1, 5, 9});
  CHECK(mesh.coordinate("pp", 9) == 2);
  CHECK(Mesh({.dp = 2, .pp = 3}, "pp-dp").group_of(4, "pp") == std::vector<std::int64_t>{3, 4, 5});
  CHECK_THROWS_WITH(Mesh({.pp = 0}, "tp"), ContainsSubstring("the pp size must be at least 1, not 0"));
}

}  // namespace isobar
