// Training with frozen parameters: they keep their bits, ranks agree with one rank, and files and predictions know of
// no moments for them.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/train/dry_run.h"
#include "apps/train/model_file.h"
#include "apps/train/rank_map.h"
#include "comm/thread_ranks.h"
#include "engine/files/safetensors.h"
#include "engine/storage.h"
#include "tests/harness/findings.h"
#include "tests/harness/testing.h"
#include "tests/harness/tiny_classifier.h"

namespace isobar::testing {
namespace {

const std::string kFrozenLabels = {0, 1, 2, 2, 1, 0, 0, 1, 1, 2, 0, 2, 1, 0};

TinyClassifier with_frozen(const char* freeze = R"(freeze=["blocks.0.*","pos_embed","norm.bias"])",
                           std::vector<std::string> keys = {"ema=0.5"}) {
  keys.emplace_back(freeze);
  return TinyClassifier(kFrozenLabels, std::move(keys));
}

bool is_frozen(const std::string& name) {
  return name.starts_with("blocks.0.") || name == "pos_embed" || name == "norm.bias";
}

std::vector<std::string> names_in(const std::filesystem::path& file) {
  std::vector<std::string> names;
  const SafetensorsReader reader(file);
  for (const TensorInfo& info : reader.tensors()) names.push_back(info.name);
  std::ranges::sort(names);
  return names;
}

}  // namespace

TEST_CASE("freeze: frozen weights keep their bits through decay, clipping and averages, and the others are trained") {
  for (const char* optimizer : {"optimizer=adam", "optimizer=adamw"}) {
    const TinyClassifier classifier =
        with_frozen(R"(freeze=["blocks.0.*","pos_embed","norm.bias"])", {"ema=0.5", "weight_decay=0.3", optimizer});
    TinyRank rank(classifier);
    const NamedTensors before = rank.weights();
    for (int t = 0; t < 4; ++t) rank.step();
    for (const NamedTensors& after : {rank.weights(), rank.averaged_weights()})
      for (const auto& [name, values] : after) {
        INFO(name);
        CHECK((values == before.at(name)) == is_frozen(name));
      }
  }
}

// A norm of which one of weight and bias is frozen adds the other one's gradient up over the parts.
TEST_CASE("freeze: in parts a batch gives the same gradients") {
  for (const char* freeze : {R"(freeze=["*.norm1.weight","norm.bias"])", R"(freeze=["*.norm1.bias","norm.weight"])"}) {
    const TinyClassifier classifier = with_frozen(freeze);
    TinyRank whole(classifier), in_parts(classifier, {}, {}, 7);
    whole.step();
    in_parts.step();
    const NamedTensors expected = whole.weights(), weights = in_parts.weights();
    for (const auto& [name, values] : expected) {
      INFO(name);
      CHECK(relative_difference(values, weights.at(name)) < 1e-12);
    }
  }
}

TEST_CASE("freeze: ranks train as one rank does, whoever holds what of the optimizer") {
  const TinyClassifier classifier = with_frozen();
  TinyRank alone(classifier);
  std::vector<double> norms;
  for (int t = 0; t < 3; ++t) norms.push_back(alone.step().grad_norm);
  const NamedTensors expected = alone.weights(), average = alone.averaged_weights();
  Findings findings;
  for (const MeshSizes sizes :
       {MeshSizes{.dp = 2}, MeshSizes{.tp = 2}, MeshSizes{.dp = 2, .tp = 2}, MeshSizes{.dp = 4}})
    for (const bool is_sharded : {false, true}) {
      if (is_sharded && sizes.dp == 1) continue;
      const ExchangeOptions exchange{.bucket_bytes = 4096, .shards = is_sharded ? ExchangeOptions::kAll : 1};
      run_ranks({.ranks = static_cast<int>(sizes.dp * sizes.tp)}, [&](const Communicator& world) {
        TinyRank rank(classifier, world, sizes, 1, exchange);
        const NamedTensors before = rank.weights();
        const CommLedger ledger = world.ledger();
        for (int t = 0; t < 3; ++t)
          findings.expect(std::abs(rank.step().grad_norm - norms[static_cast<std::size_t>(t)]) <
                              1e-12 * norms[static_cast<std::size_t>(t)],
                          "the norm");
        const NamedTensors after = rank.weights();
        for (const auto& [name, values] : after) {
          findings.expect(relative_difference(expected.at(name), values) < 1e-12, name);
          if (is_frozen(name)) findings.expect(values == before.at(name), name + " keeps its bits");
        }
        for (const auto& [name, values] : rank.averaged_weights())
          findings.expect(relative_difference(average.at(name), values) < 1e-12, "average of " + name);
        rank.trainer().check_replicas();
        rank.trainer().check_finite();
        const RankHolds holds = rank.trainer().holds();
        const Parameters& parameters = rank.task().parameters();
        findings.expect(parameters.held_trained() < parameters.held(), "some are frozen");
        findings.expect(holds.gradients.predicted == 8 * parameters.held_trained(), "bytes of gradients");
        findings.expect(holds.gradients.counted == 8 * parameters.grads().numel(), "bytes of gradients, counted");
        findings.expect(holds.moments.counted >= holds.moments.predicted, "bytes of moments");
        findings.expect(holds.moments.counted <= 3 * 8 * parameters.grads().numel(), "none of frozen ones");
      });
    }
  CHECK(findings.wrong() == "");
}

TEST_CASE("freeze: files have no moments of frozen parameters, and a run goes on from them in any layout") {
  const TinyClassifier classifier = with_frozen();
  const TemporaryFolder folder;
  TinyRank whole(classifier);
  for (int t = 0; t < 2; ++t) whole.step();
  whole.write_files(folder, "alone");
  std::vector<std::string> expected, all;
  for (const auto& [name, values] : whole.weights()) {
    all.push_back(name);
    for (const char* prefix : {"m.", "v.", "w."})
      if (!is_frozen(name)) expected.push_back(prefix + name);
  }
  std::ranges::sort(expected);
  std::ranges::sort(all);
  CHECK(names_in(folder / "alone.optimizer") == expected);
  CHECK(names_in(folder / "alone.model") == all);
  const nlohmann::ordered_json state = whole.trainer().state();
  const Cursor cursor = whole.loaders().cursor();
  for (int t = 0; t < 3; ++t) whole.step();
  const auto go_on = [&](TinyRank& rank) {
    read_model(folder / "alone.model", rank.task());
    rank.trainer().read_optimizer(folder / "alone.optimizer");
    rank.trainer().set_state(state);
    rank.loaders().seek(cursor);
    for (int t = 0; t < 3; ++t) rank.step();
  };
  TinyRank resumed(classifier);
  go_on(resumed);
  CHECK(resumed.weights() == whole.weights());
  Findings findings;
  run_ranks({.ranks = 4}, [&](const Communicator& world) {
    TinyRank rank(classifier, world, {.dp = 2, .tp = 2}, 1, {.bucket_bytes = 4096, .shards = ExchangeOptions::kAll});
    go_on(rank);
    for (const auto& [name, values] : rank.weights())
      findings.expect(relative_difference(whole.weights().at(name), values) < 1e-12, name);
  });
  CHECK(findings.wrong() == "");

  // Moments of an unfrozen run are of another optimizer.
  const TinyClassifier unfrozen(kFrozenLabels, {"ema=0.5"});
  TinyRank other(unfrozen);
  CHECK_THROWS_WITH(other.trainer().read_optimizer(folder / "alone.optimizer"), ContainsSubstring("is missing"));
}

TEST_CASE("freeze: predictions of memory and exchange leave frozen parameters out") {
  const TinyClassifier some = with_frozen(R"(freeze=["blocks.*"])"), all = with_frozen("freeze=null");
  const auto predicted = [](const TinyClassifier& classifier) {
    return predict_step(classifier.data(), classifier.config().trainer_options(), {.sizes = {.dp = 2}},
                        DeviceKind::cpu);
  };
  const StepPrediction less = predicted(some), more = predicted(all);
  CHECK(less.parameters == more.parameters);
  CHECK(less.holds.weights.predicted == more.holds.weights.predicted);
  CHECK(less.holds.gradients.counted < more.holds.gradients.counted);
  CHECK(less.holds.moments.counted < more.holds.moments.counted);
  CHECK(less.traffic.total().bytes < more.traffic.total().bytes);
  CHECK(less.peak_bytes < more.peak_bytes);
  const std::string map = describe_ranks(some.data(), some.config().compute, some.config().optimizer, {.dp = 2},
                                         "tp-cp-dp", ExchangeOptions::kAll);
  CHECK_THAT(map, ContainsSubstring(" frozen): "));
}

// Large enough for numbers that differ in the MiB with one digit that are shown.
TEST_CASE("freeze: the map of ranks tells bytes of what is trained, and of shares of it, by their number") {
  const TinyClassifier classifier =
      with_frozen(R"(freeze=["blocks.0.*","pos_embed"])", {"dtype=fp32", "amp_mode=bf16", "embed_dim=256", "ema=0.5"});
  const ComputeOptions& compute = classifier.config().compute;
  const std::unique_ptr<Task> task = classifier.data().make_task(compute, meta_like(DeviceKind::cpu));
  const auto held = static_cast<std::size_t>(task->parameters().held()),
             trained = static_cast<std::size_t>(task->parameters().held_trained());
  REQUIRE(trained < held);
  const auto expected = [&](std::size_t sharing) {
    return concat(held, " parameters (", held - trained, " frozen): ", text_of_bytes(4 * held), " of weights and ",
                  text_of_bytes(2 * held), " rounded, ", text_of_bytes(4 * trained), " of gradients, ",
                  text_of_bytes(8 * trained / sharing), " of moments, ", text_of_bytes(4 * trained / sharing),
                  " of the average\n");
  };
  const auto map = [&](const MeshSizes& sizes, std::int64_t shards) {
    return describe_ranks(classifier.data(), compute, classifier.config().optimizer, sizes, "tp-cp-dp", shards);
  };
  CHECK_THAT(map({.dp = 4}, 1), ContainsSubstring(expected(1)));
  CHECK_THAT(map({.dp = 4}, 2), ContainsSubstring(expected(2)));
  CHECK_THAT(map({.dp = 4}, ExchangeOptions::kAll), ContainsSubstring(expected(4)));
}

}  // namespace isobar::testing
