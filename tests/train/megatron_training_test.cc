// Training by Megatron-LM's rules: rates by samples of applied updates, a growing batch, weight decay that grows, and
// the mean of means.
#include <cmath>
#include <string>
#include <vector>

#include "comm/thread_ranks.h"
#include "tests/harness/testing.h"
#include "tests/harness/tiny_classifier.h"

namespace isobar::testing {
namespace {

std::string labels_of(int count) {
  std::string labels;
  for (int i = 0; i < count; ++i) labels += static_cast<char>(i % 3);
  return labels;
}

std::vector<double> losses_of(TinyRank& rank, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(rank.step().loss);
  return losses;
}

}  // namespace

TEST_CASE("Megatron's training: an update that fp16 skips does not advance the rate") {
  const TinyClassifier classifier(
      labels_of(17),
      {"dtype=fp32", "amp_mode=fp16", "warmup_rule=megatron", "decay_samples=1000", "warmup_samples=70.5", "lr=1e-3",
       "initial_loss_scale=1e30", "loss_scale_backoff=1e-27", "min_loss_scale=1e-9"});
  TinyRank rank(classifier);
  const StepResult skipped = rank.step();
  CHECK_FALSE(skipped.applied);
  CHECK(skipped.lr == 0);  // the first update has rate 0
  CHECK(skipped.next_lr == 0);
  CHECK(skipped.loss_scale == 1e30);
  CHECK(skipped.next_loss_scale == Approx(1e3));
  const StepResult applied = rank.step();
  CHECK(applied.applied);
  CHECK(applied.lr == 0);
  CHECK(applied.next_lr == Approx(1e-3 * 7 / 70.5).epsilon(1e-14));
  CHECK(rank.trainer().state().at("applied_samples") == 7);

  // What goes on has counted the same, also from a checkpoint of before samples were counted.
  TinyRank other(classifier);
  nlohmann::ordered_json state = rank.trainer().state();
  other.trainer().set_state(state);
  CHECK(other.trainer().lr_after() == rank.trainer().lr_after());
  state.erase("applied_samples");
  other.trainer().set_state(state);
  CHECK(other.trainer().lr_after() == rank.trainer().lr_after());
}

// Nothing is learned, so that an iteration's loss is the mean over its own samples.
TEST_CASE("Megatron's training: a batch that grows takes the samples that follow") {
  const std::vector<std::string> still{"lr=0", "global_batch_size=2"};
  const TinyClassifier pairs(labels_of(17), still);
  TinyRank rank_of_pairs(pairs);
  const std::vector<double> of_pairs = losses_of(rank_of_pairs, 6);
  const TinyClassifier growing(labels_of(17),
                               {"lr=0", "global_batch_size=6", "grad_accumulation=3", "batch_rampup=[2,2,4]"});
  for (const int ranks : {1, 2})
    run_ranks({.ranks = ranks}, [&](const Communicator& world) {
      TinyRank rank(growing, world, {.dp = ranks}, 3);
      std::vector<std::int64_t> samples;
      std::vector<double> losses;
      for (int i = 0; i < 3; ++i) {
        const StepResult result = rank.step();
        samples.push_back(result.samples);
        losses.push_back(result.loss);
      }
      if (world.rank() != 0) return;
      CHECK(samples == std::vector<std::int64_t>{2, 4, 6});
      CHECK(losses[0] == Approx(of_pairs[0]).epsilon(1e-12));
      CHECK(losses[1] == Approx((of_pairs[1] + of_pairs[2]) / 2).epsilon(1e-12));
      CHECK(losses[2] == Approx((of_pairs[3] + of_pairs[4] + of_pairs[5]) / 3).epsilon(1e-12));
    });
}

// Of the first seven labels only those of samples 0, 5 and 6 count: in three parts 0 | - | 5, 6.
TEST_CASE("Megatron's training: the mean of the means of parts, and the mean of targets") {
  const std::string labels = {0, 9, 9, 9, 9, 1, 2};
  const TinyClassifier by_targets(labels), by_parts(labels, {"loss_mean=micro_batches"});
  std::vector<double> alone;
  for (const std::int64_t sample : {0, 5, 6}) {
    TinyRank rank(by_targets);
    alone.push_back(rank.task().loss(read_batch(by_targets.data().train(), std::vector{sample}), {}).item());
  }
  TinyRank targets(by_targets, {}, {}, 3), parts(by_parts, {}, {}, 3);
  CHECK(targets.step().loss == Approx((alone[0] + alone[1] + alone[2]) / 3).epsilon(1e-12));
  CHECK(parts.step().loss == Approx((alone[0] + 0 + (alone[1] + alone[2]) / 2) / 3).epsilon(1e-12));
  // The gradient is that of the loss: a step of one part is the same with both.
  TinyRank one(by_targets), other(by_parts);
  one.step();
  other.step();
  CHECK(one.weights() == other.weights());
}

TEST_CASE("Megatron's training: weight decay that grows over the samples of the run, on matrices or on everything") {
  const auto after = [](std::vector<std::string> keys, int steps) {
    keys.insert(keys.end(), {"optimizer=adamw", "num_iters=4", "betas=[0,0]", "eps=1e30", "lr=1"});  // decay alone
    const TinyClassifier classifier(labels_of(28), keys);
    TinyRank rank(classifier);
    const NamedTensors before = rank.weights();
    for (int i = 0; i < steps; ++i) rank.step();
    const NamedTensors now = rank.weights();
    const auto shrunk = [&](const char* name) { return now.at(name)[0] / before.at(name)[0]; };
    return std::pair(shrunk("blocks.0.attn.q.weight"), shrunk("blocks.0.norm1.weight"));
  };
  const std::vector<std::string> growing{"weight_decay=0.1", "end_weight_decay=0.5", "weight_decay_schedule=linear",
                                         "lr_schedule=constant"};
  const auto [matrix, norm] = after(growing, 3);  // 0.1, 0.2, 0.3 before samples 0, 7 and 14 of 28
  CHECK(matrix == Approx(0.9 * 0.8 * 0.7).epsilon(1e-12));
  CHECK(norm == 1);
  std::vector<std::string> all = growing;
  all.push_back("weight_decay_on=all");
  CHECK(after(all, 1).second == Approx(0.9).epsilon(1e-12));
}

TEST_CASE("Megatron's training: norms of all weights, and gradients that are 0, whatever ranks hold them") {
  constexpr double kKeyBiases = 32;  // of two blocks: their gradients are rounding noise, which may be 0
  const TinyClassifier classifier(labels_of(17));
  double norm = 0, zeros = 0;
  for (const MeshSizes sizes : {MeshSizes{}, MeshSizes{.dp = 2}, MeshSizes{.tp = 2}, MeshSizes{.dp = 2, .tp = 2}})
    for (const bool is_sharded : {false, true}) {
      const ExchangeOptions exchange{.shards = is_sharded ? ExchangeOptions::kAll : 1};
      run_ranks({.ranks = static_cast<int>(sizes.dp * sizes.tp)}, [&](const Communicator& world) {
        TinyRank rank(classifier, world, sizes, 1, exchange);
        rank.step();
        const double its_norm = rank.trainer().weights_norm(), its_zeros = rank.trainer().gradient_zeros();
        if (world.rank() != 0) return;
        if (world.size() == 1 && !is_sharded) norm = its_norm, zeros = its_zeros;
        CHECK(its_norm == Approx(norm).epsilon(1e-12));
        CHECK(std::abs(its_zeros - zeros) <= kKeyBiases);
      });
    }
  TinyRank rank(classifier);
  rank.step();
  double squares = 0;
  for (const auto& [name, values] : rank.weights())
    for (const double value : values) squares += value * value;
  CHECK(norm == Approx(std::sqrt(squares)).epsilon(1e-12));
}

}  // namespace isobar::testing
