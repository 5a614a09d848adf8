// The average of the weights: its formula, ranks that share it, going on from files, and what is saved as the model.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/train/model_file.h"
#include "apps/train/rank_map.h"
#include "comm/thread_ranks.h"
#include "engine/files/safetensors.h"
#include "tests/harness/findings.h"
#include "tests/harness/testing.h"
#include "tests/harness/tiny_classifier.h"

namespace isobar::testing {
namespace {

constexpr int kSteps = 12;
const std::string kLabels = {0, 1, 2, 2, 1, 0, 0, 1, 1, 2, 0, 2, 1, 0};

// d of 0.5 is reached at the eighth update: (1 + 8)/(10 + 8).
TinyClassifier with_average(const char* ema = "ema=0.5") {
  return TinyClassifier(kLabels, {ema});
}

NamedTensors tensors_of(const std::filesystem::path& file) {
  NamedTensors all;
  const SafetensorsReader reader(file);
  for (const TensorInfo& info : reader.tensors()) {
    const Tensor values = Tensor::empty(info.shape, DType::fp64, Device{});
    reader.read(info, 0, values.numel(), DType::fp64, static_cast<std::byte*>(values.data()));
    all[info.name] = values.to_vector();
  }
  return all;
}

}  // namespace

TEST_CASE("ema: follows its formula, and training does not see it") {
  const TinyClassifier classifier = with_average(), without = with_average("ema=0");
  TinyRank rank(classifier), plain(without);
  NamedTensors expected = rank.weights();
  CHECK(rank.averaged_weights() == expected);  // before the first update
  for (int t = 1; t <= kSteps; ++t) {
    rank.step();
    plain.step();
    const NamedTensors weights = rank.weights();
    const double d = std::min(0.5, (1.0 + t) / (10.0 + t));
    for (auto& [name, values] : expected)
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += (1 - d) * (weights.at(name)[i] - values[i]);
    const NamedTensors average = rank.averaged_weights();
    for (const auto& [name, values] : expected) {
      INFO("update " << t << ", " << name);
      CHECK(relative_difference(values, average.at(name)) < 1e-15);
    }
    CHECK(rank.weights() == weights);
    CHECK(plain.weights() == weights);
    CHECK(plain.averaged_weights() == weights);
  }
  const Trainer::AveragedWeights in_use(rank.trainer());
  const NamedTensors average = rank.weights();
  {
    const Trainer::AveragedWeights within(rank.trainer());
    CHECK(rank.weights() == average);
  }
  CHECK(rank.weights() == average);
  CHECK_THROWS_WITH(rank.step(), ContainsSubstring("iteration 13 begins while the averaged weights are in use"));
}

TEST_CASE("ema: ranks have the average of one rank, whoever holds what of the optimizer") {
  const TinyClassifier classifier = with_average();
  TinyRank alone(classifier);
  for (int t = 0; t < 3; ++t) alone.step();
  const NamedTensors expected = alone.averaged_weights(), weights = alone.weights();
  Findings findings;
  for (const MeshSizes sizes : {MeshSizes{.dp = 2}, MeshSizes{.tp = 2}, MeshSizes{.dp = 2, .tp = 2}})
    for (const bool is_sharded : {false, true}) {
      if (is_sharded && sizes.dp == 1) continue;
      const ExchangeOptions exchange{.bucket_bytes = 4096, .shards = is_sharded ? ExchangeOptions::kAll : 1};
      run_ranks({.ranks = static_cast<int>(sizes.dp * sizes.tp)}, [&](const Communicator& world) {
        TinyRank rank(classifier, world, sizes, 1, exchange);
        for (int t = 0; t < 3; ++t) rank.step();
        const std::vector<double> held = rank.task().parameters().weights().to_vector();
        const NamedTensors average = rank.averaged_weights();
        const RankHolds holds = rank.trainer().holds();
        for (const auto& [name, values] : average)
          findings.expect(relative_difference(expected.at(name), values) < 1e-12, name);
        findings.expect(rank.task().parameters().weights().to_vector() == held, "the weights come back bit for bit");
        rank.trainer().check_replicas();
        rank.trainer().check_finite();
        findings.expect(holds.moments.counted >= holds.moments.predicted, "predicted bytes");
        findings.expect(holds.moments.counted * (is_sharded ? sizes.dp : 1) >= 3 * holds.weights.predicted, "bytes");
      });
    }
  CHECK(findings.wrong() == "");
}

TEST_CASE("ema: the map of ranks tells what it takes") {
  const auto told = [](const TinyClassifier& classifier) {
    const RunConfig& config = classifier.config();
    return describe_ranks(classifier.data(), config.compute, config.optimizer, {.dp = 2}, "tp-cp-dp",
                          ExchangeOptions::kAll);
  };
  const std::string with = told(with_average()), without = told(with_average("ema=0"));
  CHECK_THAT(without, ContainsSubstring("of moments\n"));
  CHECK_THAT(with, ContainsSubstring("of moments, 0.0 MiB of the average\n"));
}

TEST_CASE("ema: the model's file holds the average, the optimizer's the weights, and a run goes on from them") {
  const TinyClassifier classifier = with_average();
  const TemporaryFolder folder;
  TinyRank whole(classifier);
  for (int t = 0; t < 2; ++t) whole.step();
  whole.write_files(folder, "alone");
  const NamedTensors model = tensors_of(folder / "alone.model"), optimizer = tensors_of(folder / "alone.optimizer");
  CHECK(model == whole.averaged_weights());
  const NamedTensors weights = whole.weights();
  CHECK(optimizer.size() == 3 * weights.size());
  for (const auto& [name, values] : weights) CHECK(optimizer.at("w." + name) == values);
  const nlohmann::ordered_json state = whole.trainer().state();
  const Cursor cursor = whole.loaders().cursor();
  for (int t = 0; t < 3; ++t) whole.step();

  TinyRank resumed(classifier);
  read_model(folder / "alone.model", resumed.task());
  resumed.trainer().read_optimizer(folder / "alone.optimizer");
  resumed.trainer().set_state(state);
  resumed.loaders().seek(cursor);
  for (int t = 0; t < 3; ++t) resumed.step();
  CHECK(resumed.weights() == whole.weights());
  CHECK(resumed.averaged_weights() == whole.averaged_weights());

  // In any layout; and from it.
  Findings findings;
  const ExchangeOptions sharded{.bucket_bytes = 4096, .shards = ExchangeOptions::kAll};
  run_ranks({.ranks = 4}, [&](const Communicator& world) {
    TinyRank rank(classifier, world, {.dp = 2, .tp = 2}, 1, sharded);
    read_model(folder / "alone.model", rank.task());
    rank.trainer().read_optimizer(folder / "alone.optimizer");
    rank.trainer().set_state(state);
    rank.loaders().seek(cursor);
    rank.write_files(folder, "dealt");
    world.barrier();
    if (world.rank() == 0) {
      findings.expect(tensors_of(folder / "dealt.model") == model, "the same model");
      findings.expect(tensors_of(folder / "dealt.optimizer") == optimizer, "the same optimizer");
    }
    for (int t = 0; t < 3; ++t) rank.step();
    const NamedTensors average = rank.averaged_weights();
    if (world.rank() == 0)
      for (const auto& [name, values] : whole.averaged_weights())
        findings.expect(relative_difference(values, average.at(name)) < 1e-12, name);
  });
  CHECK(findings.wrong() == "");
}

}  // namespace isobar::testing
