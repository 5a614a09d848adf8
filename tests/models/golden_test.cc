// The whole model against PyTorch in fp64 (tests/golden/README.md): output, losses, every gradient, ten optimizer
// steps, a forecast; in fp64 to 1e-10, in lower precisions by the 2x rule, on every device that this machine has.
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "apps/train/model_file.h"
#include "engine/storage.h"
#include "engine/tape.h"
#include "kernels/cuda/runtime.h"
#include "models/forecast/scores.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/golden_comparison.h"

namespace isobar {
namespace {

using testing::Arithmetic, testing::Golden, testing::kFp64, testing::kGolden, testing::load, testing::NamedValues;
using testing::check_budget, testing::check_exact;
using testing::forecast_of, testing::forecaster_of;

RunConfig config_of(const Golden& golden, Arithmetic arithmetic, const nlohmann::json& more = {}) {
  nlohmann::json keys{{"global_batch_size", 3}};
  if (!more.is_null()) keys.update(more);
  return testing::checked_config(testing::golden_entries(golden, arithmetic, keys));
}

// Fields that are normalised already: mean 0, standard deviation 1.
FieldsInfo plain_fields(RunConfig& config, std::vector<double> row_weights = {}) {
  const ForecastOptions& forecast = forecast_of(config).forecast;
  const auto channels = static_cast<std::size_t>(*forecast.n_in_channels);
  if (row_weights.empty()) row_weights.assign(static_cast<std::size_t>(forecast.height()), 1.0);
  FieldsInfo info;
  info.channel_names.assign(channels, "c");
  info.statistics = {std::vector<double>(channels, 0.0), std::vector<double>(channels, 1.0)};
  info.row_weights = std::move(row_weights);
  return info;
}

Batch pairs_of(const Golden& golden, Device device) {
  return {{"input", load(golden, "input", device)}, {"target", load(golden, "target", device)}};
}

struct Outcome {
  std::vector<double> output, loss;
  NamedValues gradients;
};

Outcome run(Forecaster& forecaster, const Tensor& input, const Tensor& target, double loss_scale = 1) {
  Tape tape;
  Tensor output, loss;
  {
    const TapeScope recording(tape);
    output = forecaster.forecast(input);
    loss = forecaster.loss(output, target);
  }
  return {output.to_vector(), loss.to_vector(), testing::gradients_of(forecaster.parameters(), tape, loss, loss_scale)};
}

Outcome run_vit(const Golden& golden, Arithmetic arithmetic, const nlohmann::json& more = {},
                const std::vector<double>& row_weights = {}) {
  RunConfig config = config_of(golden, arithmetic, more);
  Forecaster forecaster = forecaster_of(config, plain_fields(config, row_weights), arithmetic.device);
  read_model(kGolden + "vit_weights.safetensors", forecaster);
  const Batch batch = pairs_of(golden, arithmetic.device);
  return run(forecaster, forecaster.input().input_of(batch), forecaster.input().target_of(batch),
             testing::loss_scale_of(golden, arithmetic));
}

// The updates of `optimizer` on the golden batch.
testing::Training train(const Golden& golden, Arithmetic arithmetic, const std::string& optimizer,
                        const nlohmann::json& more = {}) {
  nlohmann::json keys = testing::training_keys(golden, optimizer);
  if (!more.is_null()) keys.update(more);
  RunConfig config = config_of(golden, arithmetic, keys);
  Forecaster forecaster = forecaster_of(config, plain_fields(config), arithmetic.device);
  read_model(kGolden + "vit_weights.safetensors", forecaster);
  return testing::train(forecaster, config.trainer_options(), pairs_of(golden, Device{}));
}

}  // namespace

TEST_CASE("a tiny ViT equals PyTorch in fp64: output, losses, every gradient") {
  const Golden golden("vit");
  const Outcome pass = run_vit(golden, kFp64);
  check_exact("output", pass.output, golden.values("output"));
  check_exact("loss", pass.loss, golden.values("loss.relative_l2"));
  REQUIRE(pass.gradients.size() == golden.parameters().size());
  testing::check_exact_gradients(golden, pass.gradients);

  const std::vector<double> rows = golden.values("row_weights"), channels = golden.values("channel_weights");
  for (const char* kind : {"weighted_mse", "relative_l2_weighted"})
    check_exact(kind, run_vit(golden, kFp64, {{"loss", kind}, {"channel_weights", channels}}, rows).loss,
                golden.values(std::string("loss.") + kind));
}

TEST_CASE("RMSE, ACC and the gradients of every loss in a forecast equal PyTorch's in fp64") {
  const Golden golden("vit");
  const auto [batch, channels, height, width] = std::array<std::int64_t, 4>{3, 4, 6, 10};
  const auto on_cpu = [](const std::vector<double>& values, const Shape& shape) {
    Tensor t = Tensor::empty(shape, DType::fp64, Device{});
    t.set_values(values);
    return t;
  };
  const Shape shape{batch, channels, height, width};
  const Tensor output = on_cpu(golden.values("output"), shape), target = on_cpu(golden.values("target"), shape);
  for (const std::string kind : {"relative_l2", "weighted_mse", "relative_l2_weighted"}) {
    RunConfig config =
        config_of(golden, kFp64, {{"loss", kind}, {"channel_weights", golden.values("channel_weights")}});
    const Forecaster forecaster = forecaster_of(config, plain_fields(config, golden.values("row_weights")), Device{});
    const Tensor gradient = Tensor::zeros(shape, DType::fp64, Device{}), leaf = make_leaf(output, gradient);
    Tape tape;
    Tensor loss;
    {
      const TapeScope recording(tape);
      loss = forecaster.loss(leaf, target);
    }
    leaf.leaf()->touched = false;
    tape.backward(loss, on_cpu({1}, {1}));
    check_exact("output gradient of " + kind, gradient.to_vector(), golden.values("output_gradient." + kind));
    if (kind != "relative_l2") continue;

    const std::vector<double> sums = forecaster.scores(output, target);  // [B, C, 4]
    ScoreTotals pooled(channels, height * width);
    pooled.add(sums);
    check_exact("rmse", pooled.rmse(), golden.values("rmse"));
    check_exact("rmse of the tutorial", pooled.mean_sample_rmse(), golden.values("rmse_tutorial"));
    std::vector<double> acc(static_cast<std::size_t>(channels), 0.0);  // the mean of the samples'
    for (std::int64_t b = 0; b < batch; ++b) {
      ScoreTotals sample(channels, height * width);
      sample.add(
          std::span(sums).subspan(static_cast<std::size_t>(4 * channels * b), static_cast<std::size_t>(4 * channels)));
      for (std::size_t c = 0; c < acc.size(); ++c) acc[c] += sample.acc()[c] / static_cast<double>(batch);
    }
    check_exact("acc", acc, golden.values("acc"));
  }
}

TEST_CASE("in training masks are drawn, whatever a forecast is put together from") {
  const Golden golden("vit");
  for (const bool predict_change : {false, true}) {
    INFO(predict_change);
    RunConfig config = config_of(golden, kFp64, {{"dropout", 0.5}, {"predict_change", predict_change}});
    Forecaster forecaster = forecaster_of(config, plain_fields(config), Device{});
    read_model(kGolden + "vit_weights.safetensors", forecaster);
    const Batch batch = pairs_of(golden, Device{});
    const auto loss = [&](const Pass& pass) { return forecaster.loss(batch, pass).item(); };
    const Pass training = Pass::training({1, 0}), other = Pass::training({2, 0});
    CHECK(loss({}) == loss({}));
    CHECK(loss(training) == loss(training));
    CHECK(loss(training) != loss({}));
    CHECK(loss(training) != loss(other));
  }
}

TEST_CASE("recomputed activations give the same bits") {
  const Golden golden("vit");
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    const Arithmetic arithmetic{{DeviceKind::cpu}, dtype};
    const Outcome kept = run_vit(golden, arithmetic), again = run_vit(golden, arithmetic, {{"recompute", true}});
    CHECK(kept.output == again.output);
    CHECK(kept.gradients == again.gradients);
    REQUIRE(testing::finite(kept.output));
  }
}

// On the emulator all work of a pass waits in a queue until the host reads, and memory that is freed too early is NaN.
TEST_CASE("streams: a pass and the updates on a stream of their own give the bits of the default stream", "[stream]") {
  const Golden golden("vit");
  for (const Arithmetic arithmetic : testing::low_precisions()) {
    if (arithmetic.device.kind == DeviceKind::cpu) continue;
    INFO(name_of(arithmetic.dtype) << " on " << name_of(arithmetic.device.kind));
    const nlohmann::json more{{"recompute", arithmetic.dtype == DType::bf16}};
    const Outcome pass = run_vit(golden, arithmetic, more);
    const testing::Training training = train(golden, arithmetic, "adam", more);
    const StreamScope scope(std::make_shared<gpu::OwnedStream>(arithmetic.device));
    const Outcome queued = run_vit(golden, arithmetic, more);
    CHECK(queued.output == pass.output);
    CHECK(queued.gradients == pass.gradients);
    CHECK(train(golden, arithmetic, "adam", more).weights == training.weights);
    REQUIRE(testing::finite(pass.output));
  }
}

TEST_CASE("ten steps of Adam and AdamW equal PyTorch's in fp64") {
  const Golden golden("vit");
  for (const std::string optimizer : {"adam", "adamw"})
    testing::check_exact_training(golden, train(golden, kFp64, optimizer), optimizer);
}

TEST_CASE("the first step of Adam divides by the gradient's size and the config's eps") {
  const Golden golden("vit"), start("vit_weights");
  constexpr double kEps = 0.5;
  const testing::Training training = train(golden, kFp64, "adam", {{"num_iters", 1}, {"eps", kEps}});
  for (const std::string& name : golden.parameters()) {
    std::vector<double> expected = start.values(name);
    const std::vector<double> gradient = golden.values("gradient." + name);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] -= training.rates[0] * gradient[i] / (std::abs(gradient[i]) + kEps);
    check_exact(name, training.weights.at(name), expected);
  }
}

TEST_CASE("the change is predicted from fields and time planes as by PyTorch in fp64") {
  const Golden golden("change");
  RunConfig config = config_of(golden, kFp64);
  Forecaster forecaster = forecaster_of(config, plain_fields(config), kFp64.device);
  Parameters& parameters = forecaster.parameters();
  for (const NamedParameter& p : parameters.named()) parameters.weight(p).set_values(golden.values("weight." + p.name));
  Batch batch = pairs_of(golden, kFp64.device);
  CHECK_THROWS_WITH(forecaster.input().input_of(batch), testing::ContainsSubstring("gives no tensor time"));
  batch["time"] = load(golden, "planes", kFp64.device, DType::fp64);
  const Outcome pass = run(forecaster, forecaster.input().input_of(batch), forecaster.input().target_of(batch));
  check_exact("output", pass.output, golden.values("output"));
  check_exact("loss", pass.loss, golden.values("loss.relative_l2"));
  testing::check_exact_gradients(golden, pass.gradients);
}

TEST_CASE("a head that predicts the change starts at zero") {
  const Golden golden("change");
  const Arithmetic fp32{{DeviceKind::cpu}, DType::fp32};
  RunConfig config = config_of(golden, fp32);
  Forecaster forecaster = forecaster_of(config, plain_fields(config), fp32.device);
  const Batch batch{{"input", load(golden, "input", fp32.device)},
                    {"time", load(golden, "planes", fp32.device, DType::fp64)}};
  CHECK(forecaster.input().to_physical(forecaster.forecast(forecaster.input().input_of(batch))) ==
        golden.floats("input"));
}

TEST_CASE("four forecast steps equal PyTorch's in fp64") {
  const Golden golden("forecast");
  RunConfig config = config_of(golden, kFp64);
  FieldsInfo grid = plain_fields(config);
  grid.statistics = {golden.values("mean"), golden.values("std")};
  Forecaster forecaster = forecaster_of(config, grid, kFp64.device);
  read_model(kGolden + "vit_weights.safetensors", forecaster);
  const Tensor initial = load(golden, "initial", Device{}).view({1, 4, 6, 10});
  const Batch batch{{"input", initial}, {"target", initial}};  // it gives nothing that the model needs
  Tensor input = forecaster.input().input_of(batch);
  std::vector<double> steps;
  for (int step = 0; step < 4; ++step) {
    const Tensor forecast = forecaster.forecast(input);
    const std::vector<double> normalized = forecast.to_vector();
    const std::size_t pixels = normalized.size() / 4;
    for (std::size_t i = 0; i < normalized.size(); ++i)
      steps.push_back(normalized[i] * grid.statistics.stds[i / pixels] + grid.statistics.means[i / pixels]);
    input = forecaster.input().continued(input, forecast, batch, 1);
  }
  check_exact("forecast", steps, golden.values("forecast"));
}

TEST_CASE("a batch that is not of the model's grid is refused") {
  const Golden golden("vit");
  const Arithmetic fp32{{DeviceKind::cpu}, DType::fp32};
  RunConfig config = config_of(golden, fp32);
  const Forecaster forecaster = forecaster_of(config, plain_fields(config), fp32.device);
  const Tensor fields = load(golden, "input", fp32.device);
  const Batch turned{{"input", fields.view({3, 4, 10, 6})}, {"target", fields.view({3, 2, 12, 10})}};
  CHECK_THROWS_WITH(forecaster.input().input_of(turned),
                    testing::ContainsSubstring("input has the shape [3, 4, 10, 6], but the model needs [3, 4, 6, 10]"));
  CHECK_THROWS_WITH(forecaster.input().target_of(turned),
                    testing::ContainsSubstring("target has the shape [3, 2, 12, 10]"));
}

TEST_CASE("lower precisions err at most twice as much as PyTorch in the same precision") {
  const Golden golden("vit"), weights("vit_weights");
  NamedValues start;
  for (const std::string& name : golden.parameters()) start[name] = weights.values(name);
  for (const Arithmetic arithmetic : testing::low_precisions()) {
    const std::string yardstick = std::string("yardstick.") + name_of(arithmetic.dtype) + ".";
    INFO(name_of(arithmetic.dtype) << " on " << name_of(arithmetic.device.kind));
    const Outcome pass = run_vit(golden, arithmetic);
    check_budget("output", pass.output, golden.values("output"), golden.values(yardstick + "output")[0]);
    check_budget("loss", pass.loss, golden.values("loss.relative_l2"), golden.values(yardstick + "loss")[0]);
    testing::check_gradient_budgets(golden, pass.gradients, yardstick);
    testing::check_update_budget(golden, train(golden, arithmetic, "adam"), start, "adam", yardstick);
  }
}

}  // namespace isobar
