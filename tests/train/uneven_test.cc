// Uneven parts, ranks and weights: a batch counts as one, however it is cut and whatever counts in it.
#include <algorithm>
#include <string>
#include <vector>

#include "apps/train/dry_run.h"
#include "comm/thread_ranks.h"
#include "kernels/cross_entropy.h"
#include "tests/harness/findings.h"
#include "tests/harness/testing.h"
#include "tests/harness/tiny_classifier.h"

namespace isobar::testing {
namespace {

constexpr int kSteps = 4;

// Seventeen images of which most labels are ignored: in batches of 7 in 3 parts over 2 ranks there are parts and ranks
// in which nothing counts.
const std::string kLabels = {0, 9, 9, 9, 9, 1, 2, /**/ 9, 9, 9, 2, 1, 9, 0, /**/ 9, 1, 9};

struct Steps {
  std::vector<double> losses, norms;
  NamedTensors weights;  // on the first rank
  bool is_predicted = true;
};

Steps train(const TinyClassifier& classifier, std::int64_t parts, const Communicator& world = {},
            const MeshSizes& sizes = {}, const ExchangeOptions& exchange = {}) {
  TinyRank rank(classifier, world, sizes, parts, exchange);
  const StepPrediction predicted = predict_step(
      classifier.data(), rank.options(), {.sizes = sizes, .exchange = exchange, .rank = world.rank()}, DeviceKind::cpu);
  Steps made;
  for (int step = 0; step < kSteps; ++step) {
    const CommLedger before = world.ledger();
    StepResult result = rank.trainer().step([&] { return rank.loaders().next(); });
    if (step == 0) made.is_predicted = world.ledger().since(before) == predicted.traffic;
    world.all_reduce({&result.loss, 1});
    made.losses.push_back(result.loss / world.size());
    made.norms.push_back(result.grad_norm);
  }
  made.weights = rank.weights();
  return made;
}

void compare(const Steps& serial, const Steps& other, const std::string& name, Findings& findings) {
  findings.expect(relative_difference(serial.losses, other.losses) < 1e-12, name + ": losses");
  findings.expect(relative_difference(serial.norms, other.norms) < 1e-12, name + ": gradient norms");
  for (const auto& [tensor, values] : other.weights)
    findings.expect(relative_difference(serial.weights.at(tensor), values) < 1e-12, name + ": " + tensor);
  findings.expect(other.is_predicted, name + ": the predicted exchange");
}

// In every layout of a few ranks.
void compare_layouts(const TinyClassifier& classifier, const std::vector<std::int64_t>& parts_to_try) {
  const Steps serial = train(classifier, 1);
  Findings findings;
  for (const std::int64_t parts : parts_to_try) {
    const std::string name = concat(parts, " parts");
    compare(serial, train(classifier, parts), name, findings);
    for (const MeshSizes sizes : {MeshSizes{.dp = 2}, MeshSizes{.tp = 2}, MeshSizes{.dp = 2, .tp = 2}})
      for (const bool is_sharded : {false, true}) {
        if (is_sharded && sizes.dp == 1) continue;
        const ExchangeOptions exchange{.bucket_bytes = 4096, .shards = is_sharded ? ExchangeOptions::kAll : 1};
        run_ranks({.ranks = static_cast<int>(sizes.dp * sizes.tp)}, [&](const Communicator& world) {
          compare(serial, train(classifier, parts, world, sizes, exchange),
                  concat(name, ", dp ", sizes.dp, ", tp ", sizes.tp, is_sharded ? ", sharded" : ""), findings);
        });
      }
  }
  CHECK(findings.wrong() == "");
}

}  // namespace

TEST_CASE("uneven: 7 samples with ignored labels in 3 parts over 2 ranks are one part on one rank") {
  const TinyClassifier classifier(kLabels);
  // By hand, sample by sample: the mean over those of the first batch whose labels count.
  double sum = 0, weight = 0;
  for (std::int64_t sample = 0; sample < 7; ++sample) {
    TinyRank rank(classifier);
    const Batch batch = read_batch(classifier.data().train(), std::vector<std::int64_t>{sample});
    if (tensor_of(batch, "label").to_vector()[0] == kIgnoredLabel) {
      CHECK(rank.task().weight(batch) == 0);
      continue;
    }
    sum += rank.task().loss(batch, {}).item();
    weight += rank.task().weight(batch);
  }
  CHECK(weight == 3);
  CHECK(train(classifier, 1).losses[0] == Approx(sum / weight).epsilon(1e-13));
  compare_layouts(classifier, {2, 3});
}

TEST_CASE("uneven: where all labels count, parts and ranks count by their samples") {
  std::string labels;
  for (int i = 0; i < 17; ++i) labels += static_cast<char>(i % 3);
  const TinyClassifier classifier(labels, {"ignored_label=null"});
  CHECK(TinyRank(classifier).task().counts_samples());
  compare_layouts(classifier, {2, 3});
}

TEST_CASE("uneven: an incomplete batch that is kept is the mean over its own samples, on ranks that have none of it") {
  for (const char* ignored : {"ignored_label=9", "ignored_label=null"}) {
    std::string labels = kLabels;
    if (std::string(ignored).ends_with("null"))
      for (char& label : labels) label = static_cast<char>(label % 3);
    const TinyClassifier classifier(labels, {"incomplete_batch=keep", ignored});
    TinyRank rank(classifier);
    std::vector<std::int64_t> missing;
    for (int i = 0; i < kSteps; ++i) missing.push_back(rank.step().missing);
    CHECK(missing == std::vector<std::int64_t>{0, 0, 4, 0});
    CHECK(rank.loaders().cursor() == Cursor{1, 1});
    CHECK(rank.loaders().iterations_per_epoch() == 3);
    compare_layouts(classifier, {1, 2, 3});
  }
}

// Nothing is learned, so that the third batch of three and the second, incomplete one of six are the same samples with
// the same weights.
TEST_CASE("uneven: an incomplete batch counts as one that is exactly as large") {
  const std::string labels = {0, 9, 2, 1, 1, 9, /**/ 0, 9, 1};
  for (const char* ignored : {"ignored_label=9", "ignored_label=null"}) {
    INFO(ignored);
    const std::vector<std::string> keys{"incomplete_batch=keep", "lr=0", "classes=10", ignored};
    const auto with_batches_of = [&](int samples) {
      std::vector<std::string> all(keys);
      all.push_back(concat("global_batch_size=", samples));
      return TinyClassifier(labels, all);
    };
    const Steps whole = train(with_batches_of(3), 1);
    for (const std::int64_t parts : {1, 2}) {
      const Steps incomplete = train(with_batches_of(6), parts);
      CHECK(incomplete.losses[1] == Approx(whole.losses[2]).epsilon(1e-13));
      CHECK(incomplete.norms[1] == Approx(whole.norms[2]).epsilon(1e-12));
    }
  }
}

TEST_CASE("uneven: a batch in which nothing counts ends the run, with its iteration") {
  std::string labels = kLabels;
  std::fill(labels.begin() + 7, labels.begin() + 14, static_cast<char>(TinyClassifier::kIgnored));
  const TinyClassifier classifier(labels);
  TinyRank rank(classifier, {}, {}, 3);
  CHECK_NOTHROW(rank.step());
  CHECK_THROWS_WITH(rank.step(), ContainsSubstring("iteration 2: nothing counts in this batch of 7 samples"));
}

TEST_CASE("uneven: a validation leaves ignored labels out") {
  const TinyClassifier classifier(kLabels);
  TinyRank rank(classifier);
  const std::unique_ptr<Metrics> metrics = rank.task().metrics();
  REQUIRE(rank.trainer().validate(rank.loaders().valid(), *metrics, [] { return false; }));
  double sum = 0;
  for (std::int64_t sample = 0; sample < 17; ++sample)
    if (kLabels[static_cast<std::size_t>(sample)] != TinyClassifier::kIgnored)
      sum += rank.task().loss(read_batch(classifier.data().valid(), std::vector<std::int64_t>{sample}), {}).item();
  CHECK(metrics->loss() == Approx(sum / 7).epsilon(1e-13));
}

}  // namespace isobar::testing
