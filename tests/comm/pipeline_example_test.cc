// The numbers and the drawings of docs/learn/10_a_pipeline.md.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "comm/ops.h"
#include "comm/parallel.h"
#include "comm/pipeline.h"
#include "comm/thread_ranks.h"
#include "engine/ops.h"
#include "engine/tape.h"
#include "tests/harness/findings.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using Numbers = std::vector<double>;

constexpr std::int64_t kWidth = 2;

Tensor row(const Numbers& values) {
  Tensor x = Tensor::empty({std::ssize(values) / kWidth, kWidth}, DType::fp64, Device{});
  x.set_values(values);
  return x;
}
Tensor example_leaf(const Numbers& values) {
  return make_leaf(row(values), Tensor::zeros({std::ssize(values) / kWidth, kWidth}, DType::fp64, Device{}));
}

Tensor residual_block(const Tensor& x, const Tensor& weight) {
  return add(x, linear(x, weight, {}, {.out_dtype = DType::fp64}));
}

// The page's step on one of its two ranks: the moves and exchanges of training_steps, carried out.
class ExampleRank {
 public:
  ExampleRank(const Parallel& parallel, testing::Findings& findings)
      : parallel_(parallel), findings_(findings), is_first_(parallel.pp.rank() == 0) {}

  void step() {
    const std::vector<PipelineSteps> of_ranks = training_steps(2, 2, 1);
    for (const PipelineStep& step : of_ranks[is_first_ ? 0 : 1])
      if (!step.move)
        exchange(step);
      else if (step.move->kind == Move::Kind::forward)
        forward(step.move->part);
      else
        backward(step.move->part);
    if (is_first_) findings_.expect_values(weight_.leaf()->grad, {-5, 15, -1, 8}, "dA1");
    if (!is_first_) findings_.expect_values(weight_.leaf()->grad, {6, 3, -8, -4}, "dA2");
    const Tensor gradient = table_.leaf()->grad;
    findings_.expect_values(gradient, is_first_ ? Numbers{13, 0, -12, 0} : Numbers{-3, -5, 6, 10}, "own part of dE");
    parallel_.tied_stage.all_reduce(gradient);
    findings_.expect_values(gradient, {10, -5, -6, 10}, "dE");
  }

 private:
  struct PartOnTheWay {
    Tape tape;
    Tensor input, output;  // input: what has come from rank 0
  };

  void exchange(const PipelineStep& step) {
    Tensor received;
    if (step.receive) received = row({0, 0});
    const int peer = parallel_.rank_in_link(step.peer);
    parallel_.link_to(step.peer).send_receive(step.send ? sent_[step.send->part] : Tensor(),
                                              step.send ? peer : Call::kNoRank, received,
                                              step.receive ? peer : Call::kNoRank);
    if (step.receive) received_[step.receive->part] = received;
  }

  void forward(int part) {
    PartOnTheWay& under_way = parts_[part];
    if (!is_first_) under_way.input = make_leaf(received_[part], row({0, 0}));
    const TapeScope recording(under_way.tape);
    if (is_first_) {
      Tensor token = Tensor::empty({1}, DType::i32, Device{});
      token.set_values({static_cast<double>(part)});
      under_way.output = residual_block(embedding(token, table_, DType::fp64), weight_);
      sent_[part] = under_way.output.detach();
      findings_.expect_values(under_way.output, part == 0 ? Numbers{2, 1} : Numbers{4, 2}, "u");
      return;
    }
    const Tensor y = residual_block(under_way.input, weight_);
    findings_.expect_values(y, part == 0 ? Numbers{3, 5} : Numbers{6, 10}, "y");
    under_way.output = linear(y, table_, {}, {.out_dtype = DType::fp64});
    findings_.expect_values(under_way.output, part == 0 ? Numbers{13, 1} : Numbers{26, 2}, "z");
  }

  void backward(int part) {
    PartOnTheWay& under_way = parts_.at(part);
    const Numbers dz = part == 0 ? Numbers{1, 0} : Numbers{-1, 1};
    under_way.tape.backward(under_way.output, is_first_ ? received_[part] : row(dz));
    if (!is_first_) {
      sent_[part] = under_way.input.leaf()->grad;
      findings_.expect_values(sent_[part], part == 0 ? Numbers{5, 3} : Numbers{-5, -2}, "du");
    }
  }

  const Parallel& parallel_;
  testing::Findings& findings_;
  bool is_first_;
  Tensor table_ = example_leaf({1, 2, 2, -1});
  Tensor weight_ = example_leaf(is_first_ ? Numbers{1, 0, 1, -1} : Numbers{0, 1, 2, 0});
  std::map<int, PartOnTheWay> parts_;
  std::map<int, Tensor> sent_, received_;  // by part
};

PipelineTimeline timeline_of(int ranks, int parts, int chunks, std::vector<double> work = {}) {
  std::vector<Moves> moves;
  for (int rank = 0; rank < ranks; ++rank) moves.push_back(pipeline_moves(rank, ranks, parts, chunks));
  return run_through(moves, std::move(work));
}

}  // namespace

TEST_CASE("the worked example of docs/learn/10_a_pipeline.md: a step on two ranks") {
  testing::Findings findings;
  run_ranks({.ranks = 2}, [&](const Communicator& world) {
    const Parallel parallel = Parallel::start(world, {.pp = 2}, "tp-cp-dp");
    ExampleRank(parallel, findings).step();
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("the worked example of docs/learn/10_a_pipeline.md: the drawings") {
  CHECK(draw(timeline_of(2, 1, 1)) ==
        "rank 0   F0          B0\n"
        "rank 1      F0 B0\n");
  CHECK(draw(timeline_of(2, 4, 1)) ==
        "rank 0   F0 F1       B0    F2 B1    F3 B2       B3\n"
        "rank 1      F0 B0    F1 B1    F2 B2    F3 B3\n");
  CHECK(draw(timeline_of(2, 4, 2)) ==
        "rank 0   F0a F1a F0b F1b F2a     B0b     F3a B1b     F2b B0a     F3b B1a         B2b         B3b     B2a     "
        "B3a\n"
        "rank 1       F0a F1a F0b B0b     F1b B1b     F2a B0a     F3a B1a     F2b B2b     F3b B3b     B2a     B3a\n");
  CHECK(draw(timeline_of(3, 3, 1)) ==
        "rank 0   F0 F1 F2             B0       B1       B2\n"
        "rank 1      F0 F1       B0    F2 B1       B2\n"
        "rank 2         F0 B0    F1 B1    F2 B2\n");
}

TEST_CASE("the worked example of docs/learn/10_a_pipeline.md: who waits, and what is held") {
  CHECK(timeline_of(2, 1, 1).idle() == 0.5);
  CHECK(std::abs(timeline_of(2, 4, 1).idle() - 0.2) < 1e-15);
  CHECK(std::abs(timeline_of(2, 4, 2).idle() - 1.0 / 9) < 1e-15);
  CHECK(timeline_of(3, 3, 1).end == 15);
  CHECK(std::abs(timeline_of(8, 63, 1).idle() - 0.1) < 1e-15);
  CHECK(timeline_of(8, 8, 4).idle() > 0.1);
  CHECK(timeline_of(8, 16, 4).idle() < 0.1);
  CHECK(timeline_of(8, 62, 1).idle() > 0.1);
  for (const int parts : {8, 100})
    for (std::size_t rank = 0; rank < 4; ++rank)
      CHECK(timeline_of(4, parts, 1).held(rank) == static_cast<int>(4 - rank));
  CHECK(timeline_of(2, 4, 1).held(0) == 2);
  CHECK(timeline_of(2, 4, 2).held(0) == 5);
  const PipelineTimeline uneven = timeline_of(2, 2, 1, {1, 2});
  CHECK(uneven.end == 15);
  CHECK(std::abs(uneven.idle(0) - 0.6) < 1e-15);
  CHECK(std::abs(uneven.idle(1) - 0.2) < 1e-15);
}

TEST_CASE("the worked example of docs/learn/10_a_pipeline.md: exchanges, and cuts") {
  std::string list;
  const std::vector<PipelineSteps> of_ranks = training_steps(2, 3, 1);
  for (const PipelineStep& step : of_ranks[0])
    if (!step.move)
      list += concat(step.send ? concat("send u", step.send->part, " ") : "",
                     step.receive ? concat("receive du", step.receive->part, " ") : "", "| ");
  CHECK(list == "send u0 | send u1 | receive du0 | send u2 receive du1 | receive du2 | ");

  const std::vector<double> work{3, 1, 4, 1, 5};
  const std::vector<bool> anywhere(work.size(), true);
  const auto ends = [&](std::int64_t pieces) {
    std::vector<std::int64_t> all;
    for (const Part& piece : balanced_pieces(work, anywhere, pieces)) all.push_back(piece.end);
    return all;
  };
  CHECK(ends(2) == std::vector<std::int64_t>{3, 5});
  CHECK(ends(3) == std::vector<std::int64_t>{2, 4, 5});
}

}  // namespace isobar
