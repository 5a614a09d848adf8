// The loss of forecasts of several steps: against PyTorch in fp64 with everything that a step can have (three steps, a
// forcing, planes, history, a diagnostic, missing points, the edges of a region, dropout), and against finite
// differences; what is computed again; how much memory a long rollout needs.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/train/dry_run.h"
#include "data/fields/pairs.h"
#include "engine/tape.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/golden_comparison.h"

namespace isobar {
namespace {

using nlohmann::json;
using testing::Arithmetic, testing::Golden, testing::kFp64, testing::NamedValues;
using testing::check_exact, testing::forecast_of, testing::forecaster_of, testing::load;

constexpr std::int64_t kSteps = 3;

RunConfig rollout_config(const Golden& golden, const json& more = {}, Arithmetic arithmetic = kFp64) {
  return testing::checked_config(testing::golden_entries(golden, arithmetic, more));
}

FieldsInfo info_of(const Golden& golden, RunConfig& config) {
  const std::vector<double> means = golden.values("means"), stds = golden.values("stds");
  FieldsInfo info;
  info.channel_names = *forecast_of(config).forecast.channel_names;
  info.statistics = {{means.begin(), means.begin() + 4}, {stds.begin(), stds.begin() + 4}};
  info.extra_means.assign(means.begin() + 4, means.end());
  info.extra_stds.assign(stds.begin() + 4, stds.end());
  info.row_weights.assign(static_cast<std::size_t>(forecast_of(config).forecast.height()), 1.0);
  for (const double value : golden.values("never_there")) info.never_there.push_back(value != 0 ? 1 : 0);
  return info;
}

// The points of each plane that are not missing, [B, V].
Tensor points_of(const Tensor& fields) {
  const Tensor points = Tensor::empty({fields.size(0), fields.size(1)}, DType::i32, Device{});
  const std::int64_t pixels = fields.size(2) * fields.size(3);
  const auto* value = fields.data_as<float>();
  for (std::int64_t plane = 0; plane < points.numel(); ++plane, value += pixels)
    points.data_as<std::int32_t>()[plane] =
        static_cast<std::int32_t>(std::count_if(value, value + pixels, [](float v) { return !std::isnan(v); }));
  return points;
}

Batch window_of(const Golden& golden) {
  Batch batch{{"input", load(golden, "input", Device{})}};
  for (std::int64_t k = 0; k < kSteps; ++k) {
    batch[at_step("target", k)] = load(golden, at_step("target", k), Device{});
    batch[at_step("points", k)] = points_of(batch[at_step("target", k)]);
    if (k > 0) batch[at_step("given", k)] = load(golden, at_step("given", k), Device{});
    batch[at_step("time", k)] = load(golden, at_step("time", k), Device{}, DType::fp64);
  }
  return batch;
}

Forecaster rollout_forecaster(const Golden& golden, RunConfig& config, Device device = {}) {
  Forecaster forecaster = forecaster_of(config, info_of(golden, config), device);
  Parameters& parameters = forecaster.parameters();
  for (const NamedParameter& p : parameters.named()) parameters.weight(p).set_values(golden.values("weight." + p.name));
  parameters.round_to_compute();
  return forecaster;
}

struct FirstPass {
  std::vector<double> loss;
  NamedValues gradients;
};

// The first training pass of a run.
FirstPass first_pass(const Golden& golden, const json& more = {}, Arithmetic arithmetic = kFp64) {
  RunConfig config = rollout_config(golden, more, arithmetic);
  Forecaster forecaster = rollout_forecaster(golden, config, arithmetic.device);
  const Batch batch = to_device(window_of(golden), arithmetic.device);
  Tape tape;
  Tensor loss;
  {
    const TapeScope recording(tape);
    loss = forecaster.loss(batch, Pass::training({static_cast<std::uint64_t>(config.compute.seed), 0}));
  }
  return {loss.to_vector(), testing::gradients_of(forecaster.parameters(), tape, loss)};
}

// prefix: "gradient" or "gradient_last".
void check_gradients_of(const Golden& golden, const NamedValues& gradients, const std::string& prefix) {
  REQUIRE(gradients.size() == golden.parameters().size());
  for (const auto& [name, gradient] : gradients)
    check_exact(prefix + " of " + name, gradient, golden.values(prefix + "." + name),
                testing::largest(golden.values(prefix + "." + testing::scale_name(name))));
}

}  // namespace

TEST_CASE("rollout: loss and gradients of three steps equal PyTorch's in fp64") {
  const Golden golden("rollout");
  const FirstPass full = first_pass(golden);
  check_exact("loss", full.loss, golden.values("loss"));
  check_gradients_of(golden, full.gradients, "gradient");
  const FirstPass last = first_pass(golden, {{"rollout_gradient", "last"}, {"rollout_weights", "uniform"}});
  check_exact("loss of the last step", last.loss, golden.values("loss_last"));
  check_gradients_of(golden, last.gradients, "gradient_last");
}

// In fp32 errors of 1e-7 pass through three steps.
TEST_CASE("rollout: in lower precisions, on every device, loss and gradients are those of fp64 with their rounding") {
  const Golden golden("rollout");
  for (const Arithmetic arithmetic : testing::low_precisions()) {
    INFO(name_of(arithmetic.dtype) << " on " << name_of(arithmetic.device.kind));
    const double bound = arithmetic.dtype == DType::fp32 ? 1e-5 : arithmetic.dtype == DType::fp16 ? 1e-2 : 1e-1;
    const FirstPass pass = first_pass(golden, {{"recompute_steps", true}}, arithmetic);
    CHECK(std::abs(pass.loss[0] / golden.values("loss")[0] - 1) <= bound);
    double error = 0, size = 0;
    for (const auto& [name, gradient] : pass.gradients) {
      REQUIRE(testing::finite(gradient));
      const std::vector<double> exact = golden.values("gradient." + name);
      error = std::hypot(error, testing::norm(testing::difference(gradient, exact)));
      size = std::hypot(size, testing::norm(exact));
    }
    INFO("gradients are off by " << error / size);
    CHECK(error <= bound * size);
  }
}

TEST_CASE("rollout: ten updates equal PyTorch's in fp64") {
  const Golden golden("rollout");
  json keys = testing::training_keys(golden, "adam");
  keys["global_batch_size"] = 2;
  RunConfig config = rollout_config(golden, keys);
  Forecaster forecaster = rollout_forecaster(golden, config);
  testing::check_exact_training(golden, testing::train(forecaster, config.trainer_options(), window_of(golden)),
                                "adam");
}

TEST_CASE("rollout: steps and blocks that are computed again give the same bits") {
  const Golden golden("rollout");
  const FirstPass kept = first_pass(golden);
  for (const json& more : {json{{"recompute_steps", true}}, json{{"recompute_steps", true}, {"recompute", true}},
                           json{{"recompute", true}}}) {
    INFO(more.dump());
    const FirstPass again = first_pass(golden, more);
    CHECK(again.loss == kept.loss);
    CHECK(again.gradients == kept.gradients);
  }
}

TEST_CASE("rollout: gradients are finite differences of the loss") {
  const Golden golden("rollout");
  for (const json& more : {json{{"rollout_weights", "uniform"}}, json{{"rollout_weights", "last"}},
                           json{{"rollout_weights", {1.0, 0.0, 2.0}}, {"loss", "weighted_mse"}}}) {
    INFO(more.dump());
    const NamedValues gradients = first_pass(golden, more).gradients;
    RunConfig config = rollout_config(golden, more);
    Forecaster forecaster = rollout_forecaster(golden, config);
    const Batch batch = window_of(golden);
    const auto direction = [](const std::string& name, std::size_t i) {
      return std::sin(1.7 * static_cast<double>(i) + static_cast<double>(name.size()));
    };
    const auto loss_at = [&](double distance) {
      for (const NamedParameter& p : forecaster.parameters().named()) {
        std::vector<double> values = golden.values("weight." + p.name);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += distance * direction(p.name, i);
        forecaster.parameters().weight(p).set_values(values);
      }
      return forecaster.loss(batch, Pass::training({8, 0})).item();
    };
    double slope = 0;
    for (const auto& [name, gradient] : gradients)
      for (std::size_t i = 0; i < gradient.size(); ++i) slope += gradient[i] * direction(name, i);
    constexpr double kStep = 1e-4;
    const double found =  // of fourth order
        (8 * (loss_at(kStep) - loss_at(-kStep)) - (loss_at(2 * kStep) - loss_at(-2 * kStep))) / (12 * kStep);
    INFO("slope " << slope << ", found " << found);
    CHECK(std::abs(found - slope) <= 1e-8 * std::abs(slope));
  }
}

TEST_CASE("rollout: the masks of every step are others, and those of the first step are the pass's own") {
  const Pass pass = Pass::training({5, 3 << 16});
  Pass first = pass.step(0).stage(1), second = pass.step(1).stage(1), same = pass.stage(1);
  const std::uint64_t stream = same.next_mask().stream;
  CHECK(first.next_mask().stream == stream);
  CHECK(second.next_mask().stream == stream + (std::uint64_t{1} << 48));
}

TEST_CASE("rollout: a window of one step is a pair, whatever the keys") {
  const Golden golden("rollout");
  RunConfig config = rollout_config(golden);
  Forecaster forecaster = rollout_forecaster(golden, config);
  Batch batch = window_of(golden);
  CHECK(FieldInput::steps_of(batch) == kSteps);
  for (std::int64_t k = 1; k < kSteps; ++k)
    for (const char* name : {"target", "given", "time"}) batch.erase(at_step(name, k));
  CHECK(FieldInput::steps_of(batch) == 1);
  const Tensor output = forecaster.forecast(forecaster.input().input_of(batch));
  CHECK(forecaster.loss(batch, {}).item() == forecaster.loss(output, forecaster.input().target_of(batch)).item());
}

// Of a validation: the loss is that of the training without masks; RMSE after the first step and after the last.
TEST_CASE("rollout: a set is scored by its loss and after the first step and the last") {
  const Golden golden("rollout");
  RunConfig config = rollout_config(golden);
  Forecaster forecaster = rollout_forecaster(golden, config);
  Batch batch = window_of(golden);
  batch["before"] = Tensor::zeros({2, 1, 6, 10}, DType::fp32, Device{});
  const std::unique_ptr<Metrics> metrics = forecaster.metrics();
  metrics->begin();
  forecaster.score(batch, *metrics);
  metrics->end();
  CHECK(std::abs(metrics->loss() / forecaster.loss(batch, {}).item() - 1) <= 1e-14);
  std::vector<std::string> names;
  for (const Figure& figure : metrics->report(DataSplit::valid).line)
    if (figure.part == "b") names.push_back(figure.name);
  CHECK(names == std::vector<std::string>{"rmse", "persistence_rmse", "last_rmse", "last_persistence_rmse"});
  batch.erase("target.3");
  CHECK_THROWS_WITH(forecaster.score(batch, *metrics), "a batch of windows of 2 steps is scored as 3");
}

// Peaks of memory as the ledger counts them, of a step on shapes.
TEST_CASE("rollout: steps that are computed again need little more memory than one step") {
  const auto peak = [](std::int64_t steps, bool recompute_steps) {
    RunConfig config = testing::checked_config(testing::entries_of(
        {"img_size=[72,144]", "patch_size=8", "embed_dim=384", "depth=12", "num_heads=8", "n_in_channels=20",
         "n_out_channels=20", "predict_change=true", "amp_mode=none", "global_batch_size=1", concat("rollout=", steps),
         concat("recompute_steps=", recompute_steps ? "true" : "false")}));
    return static_cast<double>(
        predict_step(*config.recipe->on_shapes(), config.trainer_options(), {}, DeviceKind::cpu).peak_bytes);
  };
  const double one = peak(1, false);
  INFO("8 steps: " << peak(8, true) / one << " times the memory of one, kept " << peak(8, false) / one);
  CHECK(peak(8, true) <= 1.3 * one);
  CHECK(peak(8, false) > 1.5 * one);  // what recompute_steps is for
}

}  // namespace isobar
