// One update and one pass over a set: what they ask for, in which order, what they tell, and what a checkpoint keeps.
#include "apps/train/trainer.h"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "apps/train/passes.h"
#include "apps/train/scoring.h"
#include "tests/harness/testing.h"
#include "tests/harness/tiny_classifier.h"

namespace isobar::testing {
namespace {

const std::string kTrainerLabels = {0, 1, 2, 2, 1, 0, 0, /**/ 1, 1, 2, 0, 2, 1, 0, /**/ 2, 1, 0};  // 17

}  // namespace

TEST_CASE("trainer: behind each part the next one is read ahead, behind the last part that of the next step") {
  const TinyClassifier classifier(kTrainerLabels, {"ignored_label=null"});  // else all parts are taken first
  TinyRank rank(classifier, {}, {}, 3);
  std::vector<std::string> order;
  rank.trainer().step(
      [&] {
        order.emplace_back("part");
        return rank.loaders().next();
      },
      [&](bool for_next_step) { order.emplace_back(for_next_step ? "ahead, of the next step" : "ahead"); });
  CHECK(order == std::vector<std::string>{"part", "ahead", "part", "ahead", "part", "ahead, of the next step"});
}

TEST_CASE("trainer: a step tells its rate and the next one, its samples and what they lacked") {
  const TinyClassifier classifier(kTrainerLabels, {"incomplete_batch=keep", "lr_schedule=linear", "num_iters=10",
                                                   "warmup=0", "end_lr=0.001", "lr=0.01"});
  TinyRank rank(classifier);
  double next = rank.trainer().lr_after();
  for (int i = 0; i < 4; ++i) {
    const StepResult step = rank.step();
    INFO("step " << i);
    CHECK(step.lr == next);
    CHECK(step.next_lr < step.lr);
    CHECK(step.next_lr == rank.trainer().lr_after());
    next = step.next_lr;
    CHECK(step.missing == (i == 2 ? 4 : 0));  // of 17 samples in batches of 7
    CHECK(step.samples == (i == 2 ? 3 : 7));
    CHECK(step.applied);
    CHECK(step.loss_scale == 1);
    CHECK(step.gradient_scale == 1);
    CHECK(rank.trainer().iteration() == i + 1);
  }
  CHECK(rank.trainer().state().at("applied_samples") == 7 + 7 + 3 + 7);
  CHECK(rank.trainer().state().at("updates") == 4);
}

TEST_CASE("trainer: masks of every part of every iteration are others, and those of a number are the same") {
  const TinyClassifier classifier(kTrainerLabels);
  const std::unique_ptr<Task> task = classifier.data().make_task(classifier.config().compute, Device{});
  const Parallel alone = Parallel::alone();
  Passes passes(*task, {.global_batch_size = 6, .grad_accumulation = 3}, {.seed = 5}, alone, nullptr, false);
  std::set<std::uint64_t> streams;
  for (std::int64_t iteration = 0; iteration < 4; ++iteration) {
    passes.begin(iteration, 1);
    for (std::int64_t part = 0; part < 3; ++part) {
      const DropoutKey key = passes.pass_of(part).next_mask();
      CHECK(key.seed == 5);
      CHECK(key.stream == static_cast<std::uint64_t>(3 * iteration + part) << 16);
      streams.insert(key.stream);
    }
  }
  CHECK(streams.size() == 12);
}

TEST_CASE("trainer: a pass over a set tells how far it is, stops between two batches, and begins anew") {
  const TinyClassifier classifier(kTrainerLabels);
  TinyRank rank(classifier);
  const std::unique_ptr<Metrics> metrics = rank.task().metrics();
  std::vector<std::int64_t> scored;
  const auto note = [&](std::int64_t samples) { scored.push_back(samples); };
  const auto judge = [&](const std::function<bool()>& stop) {
    scored.clear();
    return rank.trainer().judge(rank.loaders().valid(), *metrics, stop, note);
  };
  REQUIRE(judge([] { return false; }));
  CHECK(scored == std::vector<std::int64_t>{5, 11, 17});  // three batches: of 7, 7 and 3 samples
  const double loss = metrics->loss();
  CHECK_FALSE(judge([&] { return scored.size() == 2; }));
  CHECK(scored.size() == 2);
  CHECK_FALSE(judge([] { return true; }));
  CHECK(scored.empty());
  REQUIRE(judge([] { return false; }));  // what was broken off counts no more
  CHECK(metrics->loss() == loss);
  double sum = 0;
  for (std::int64_t sample = 0; sample < 17; ++sample)
    sum += rank.task().loss(read_batch(classifier.data().valid(), std::vector<std::int64_t>{sample}), {}).item();
  CHECK(loss == Approx(sum / 17).epsilon(1e-13));
}

TEST_CASE("trainer: the state of a checkpoint is the one that goes on, number by number") {
  const std::vector<std::string> fp16{"dtype=fp32", "amp_mode=fp16", "hysteresis=3", "loss_scale_window=4"};
  const TinyClassifier classifier(kTrainerLabels, fp16);
  const nlohmann::ordered_json state{{"iteration", 9},     {"updates", 5},       {"applied_samples", 33},
                                     {"loss_scale", 64.0}, {"clean_updates", 3}, {"overflows_left", 2}};
  TinyRank rank(classifier);
  rank.trainer().set_state(state);
  CHECK(rank.trainer().state() == state);
  CHECK(rank.trainer().iteration() == 9);
  const StepResult step = rank.step();  // the fourth clean update in a row
  CHECK(step.loss_scale == 64);
  CHECK(step.next_loss_scale == 128);
  CHECK(rank.trainer().state() == nlohmann::ordered_json{{"iteration", 10},
                                                         {"updates", 6},
                                                         {"applied_samples", 40},
                                                         {"loss_scale", 128.0},
                                                         {"clean_updates", 0},
                                                         {"overflows_left", 3}});
  const auto refused = [&](const char* key, const nlohmann::ordered_json& value) {
    nlohmann::ordered_json wrong = state;
    wrong[key] = value;
    return wrong;
  };
  CHECK_THROWS_WITH(rank.trainer().set_state(refused("updates", 10)), "updates is 10, which is not from 0 to 9");
  CHECK_THROWS_WITH(rank.trainer().set_state(refused("clean_updates", 4)),
                    "clean_updates is 4, which is not from 0 to 3");
  CHECK_THROWS_WITH(rank.trainer().set_state(refused("overflows_left", 4)),
                    "overflows_left is 4, which is not from 0 to 3");
  CHECK_THROWS_WITH(rank.trainer().set_state(refused("applied_samples", -1)),
                    ContainsSubstring("applied_samples is -1, which is not from 0 to "));
}

TEST_CASE("trainer: a loss that is not finite ends a run with its iteration") {
  const TinyClassifier classifier(kTrainerLabels);
  TinyRank rank(classifier);
  rank.step();
  for (const NamedParameter& p : rank.task().parameters().named()) {
    Tensor weight = rank.task().parameters().weight(p);
    weight.set_values(std::vector<double>(static_cast<std::size_t>(weight.numel()), std::nan("")));
  }
  CHECK_THROWS_WITH(rank.step(), Matches("iteration 2: the loss is -?nan; a lower lr, warmup or grad_clip may help"));
}

TEST_CASE("trainer: graphs of steps are for one rank on a GPU") {
  const TinyClassifier classifier(kTrainerLabels, {"cuda_graph=true"});
  CHECK_THROWS_WITH(TinyRank(classifier), "cuda_graph: needs an NVIDIA GPU");
}

}  // namespace isobar::testing
