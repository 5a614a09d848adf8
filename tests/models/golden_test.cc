// The whole model against PyTorch in fp64 (tests/golden/README.md): output, losses, every gradient, ten optimizer
// steps, a forecast; in fp64 to 1e-10, in lower precisions by the 2x rule, on every device that this machine has.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "apps/train/model_file.h"
#include "apps/train/trainer.h"
#include "engine/tape.h"
#include "kernels/cuda/runtime.h"
#include "models/forecast/scores.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/golden_file.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::forecast_of;
using testing::forecaster_of;
using testing::Golden;
using testing::kGolden;
constexpr double kExact = 1e-10;

struct Arithmetic {
  Device device;
  DType dtype;
};

// What can run here: fp64 on the CPU; fp32, bf16 and fp16 on the CPU, through the emulated CUDA kernels and on a GPU.
std::vector<Arithmetic> low_precisions() {
  std::vector<Arithmetic> all;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    all.push_back({{DeviceKind::cpu}, dtype});
    if (ISOBAR_HAS_EMULATOR) all.push_back({{DeviceKind::emulator}, dtype});
    if (gpu::device_count() > 0) all.push_back({{DeviceKind::cuda}, dtype});
  }
  return all;
}

RunConfig config_of(const Golden& golden, Arithmetic arithmetic, const nlohmann::json& more = {}) {
  nlohmann::ordered_json all = golden.metadata("config");
  all["dtype"] = arithmetic.dtype == DType::fp64 ? "fp64" : "fp32";
  all["amp_mode"] = is_16_bit(arithmetic.dtype) ? name_of(arithmetic.dtype) : "none";
  all["tf32"] = false;
  all["global_batch_size"] = 3;
  if (!more.is_null()) all.update(more);
  return testing::checked_config(entries_from(all, "golden"));
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

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

std::vector<double> difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  std::vector<double> out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

bool finite(const std::vector<double>& x) {
  return std::all_of(x.begin(), x.end(), [](double value) { return std::isfinite(value); });
}

// Largest difference relative to the largest value.
void check_exact(const std::string& what, const std::vector<double>& got, const std::vector<double>& expected,
                 double scale = 0) {
  INFO(what);
  REQUIRE(finite(got));
  const double error = largest(difference(got, expected)) / (scale > 0 ? scale : largest(expected));
  INFO("relative error " << error);
  CHECK(error <= kExact);
}

// ‖got - expected‖ may be twice PyTorch's own error in the same precision, plus one rounding of the result.
void check_budget(const std::string& what, const std::vector<double>& got, const std::vector<double>& expected,
                  double yardstick, double scale = 0) {
  INFO(what);
  REQUIRE(finite(got));
  const double error = norm(difference(got, expected)) / (scale > 0 ? scale : norm(expected));
  const double budget = 2 * yardstick + 0x1p-24;
  INFO("relative error " << error << ", " << 100 * error / budget << " % of the budget");
  CHECK(error <= budget);
}

// The gradient of a key bias is 0 in exact arithmetic: its error is measured by the query bias's gradient.
std::string scale_name(const std::string& name) {
  const std::size_t at = name.find("attn.k.bias");
  return at == std::string::npos ? name : name.substr(0, at) + "attn.q.bias";
}

// A tensor of the golden file on the device.
Tensor load(const Golden& golden, const std::string& name, Device device, DType dtype = DType::fp32) {
  Tensor tensor = Tensor::empty(golden.shape(name), dtype, device);
  tensor.set_values(golden.values(name));
  return tensor;
}

Batch pairs_of(const Golden& golden, Device device) {
  return {{"input", load(golden, "input", device)}, {"target", load(golden, "target", device)}};
}

struct Pass {
  std::vector<double> output, loss;
  std::map<std::string, std::vector<double>> gradients;
};

Pass run(Forecaster& forecaster, const Tensor& input, const Tensor& target, double loss_scale = 1) {
  Parameters& parameters = forecaster.parameters();
  Tape tape;
  Tensor output, loss;
  {
    const TapeScope recording(tape);
    output = forecaster.forecast(input);
    loss = forecaster.loss(output, target);
  }
  parameters.begin_step();
  Tensor upstream = Tensor::empty({1}, loss.dtype(), loss.device());
  upstream.set_values({loss_scale});
  tape.backward(loss, upstream);
  parameters.finish_gradients();
  Pass pass{output.to_vector(), loss.to_vector(), {}};
  for (const NamedParameter& p : parameters.named()) {
    std::vector<double> gradient = parameters.grad(p).to_vector();
    for (double& value : gradient) value /= loss_scale;
    pass.gradients[p.name] = std::move(gradient);
  }
  return pass;
}

Pass run_vit(const Golden& golden, Arithmetic arithmetic, const nlohmann::json& more = {},
             const std::vector<double>& row_weights = {}) {
  RunConfig config = config_of(golden, arithmetic, more);
  Forecaster forecaster = forecaster_of(config, plain_fields(config, row_weights), arithmetic.device);
  read_model(kGolden + "vit_weights.safetensors", forecaster);
  const Batch batch = pairs_of(golden, arithmetic.device);
  const double scale = arithmetic.dtype == DType::fp16 ? golden.metadata("training")["loss_scale"].get<double>() : 1;
  return run(forecaster, forecaster.input().input_of(batch), forecaster.input().target_of(batch), scale);
}

// Ten steps of `optimizer` on the golden batch; the weights afterwards, and the numbers logged on the way.
struct Training {
  std::map<std::string, std::vector<double>> weights;
  std::vector<double> losses, grad_norms, rates;
};

Training train(const Golden& golden, Arithmetic arithmetic, const std::string& optimizer,
               const nlohmann::json& more = {}) {
  const nlohmann::json training = golden.metadata("training");
  nlohmann::json keys{{"optimizer", optimizer}};
  for (const char* key : {"lr", "num_iters", "betas", "eps"}) keys[key] = training[key];
  if (optimizer == "adamw")
    for (const char* key : {"weight_decay", "warmup", "grad_clip"}) keys[key] = training[key];
  if (!more.is_null()) keys.update(more);
  RunConfig config = config_of(golden, arithmetic, keys);
  Forecaster forecaster = forecaster_of(config, plain_fields(config), arithmetic.device);
  read_model(kGolden + "vit_weights.safetensors", forecaster);
  Trainer trainer(forecaster, testing::trainer_options(config));

  const auto batch =
      std::make_shared<const LoadedBatch>(LoadedBatch{.at = {}, .samples = {}, .tensors = pairs_of(golden, Device{})});
  Training result;
  for (std::int64_t i = 0; i < config.schedule.num_iters; ++i) {
    const StepResult step = trainer.step([&] { return batch; });
    if (!step.applied) --i;  // an fp16 step whose gradients overflowed does not count
    if (!step.applied) continue;
    result.losses.push_back(step.loss);
    result.grad_norms.push_back(step.grad_norm);
    result.rates.push_back(step.lr);
  }
  for (const NamedParameter& p : forecaster.parameters().named())
    result.weights[p.name] = forecaster.parameters().weight(p).to_vector();
  return result;
}

}  // namespace

TEST_CASE("a tiny ViT equals PyTorch in fp64: output, losses, every gradient") {
  const Golden golden("vit");
  const Arithmetic fp64{{DeviceKind::cpu}, DType::fp64};
  const Pass pass = run_vit(golden, fp64);
  check_exact("output", pass.output, golden.values("output"));
  check_exact("loss", pass.loss, golden.values("loss.relative_l2"));
  for (const std::string& name : golden.parameters())
    check_exact("gradient of " + name, pass.gradients.at(name), golden.values("gradient." + name),
                largest(golden.values("gradient." + scale_name(name))));

  const std::vector<double> rows = golden.values("row_weights"), channels = golden.values("channel_weights");
  for (const char* kind : {"weighted_mse", "relative_l2_weighted"})
    check_exact(kind, run_vit(golden, fp64, {{"loss", kind}, {"channel_weights", channels}}, rows).loss,
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
    RunConfig config = config_of(golden, {{DeviceKind::cpu}, DType::fp64},
                                 {{"loss", kind}, {"channel_weights", golden.values("channel_weights")}});
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

TEST_CASE("recomputed activations give the same bits") {
  const Golden golden("vit");
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    const Arithmetic arithmetic{{DeviceKind::cpu}, dtype};
    const Pass kept = run_vit(golden, arithmetic), again = run_vit(golden, arithmetic, {{"recompute", true}});
    CHECK(kept.output == again.output);
    CHECK(kept.gradients == again.gradients);
    REQUIRE(finite(kept.output));
  }
}

TEST_CASE("ten steps of Adam and AdamW equal PyTorch's in fp64") {
  const Golden golden("vit");
  for (const std::string optimizer : {"adam", "adamw"}) {
    const Training training = train(golden, {{DeviceKind::cpu}, DType::fp64}, optimizer);
    check_exact(optimizer + " losses", training.losses, golden.values(optimizer + ".losses"));
    check_exact(optimizer + " norms", training.grad_norms, golden.values(optimizer + ".grad_norms"));
    check_exact(optimizer + " rates", training.rates, golden.values(optimizer + ".rates"));
    for (const std::string& name : golden.parameters()) {
      // Adam divides a gradient that is all rounding noise by its own size: the key bias's update has no exact value.
      if (name.find("attn.k.bias") != std::string::npos) continue;
      check_exact(optimizer + " " + name, training.weights.at(name), golden.values(optimizer + "." + name));
    }
  }
}

TEST_CASE("the first step of Adam divides by the gradient's size and the config's eps") {
  const Golden golden("vit"), start("vit_weights");
  constexpr double kEps = 0.5;
  const Training training = train(golden, {{DeviceKind::cpu}, DType::fp64}, "adam", {{"num_iters", 1}, {"eps", kEps}});
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
  const Arithmetic fp64{{DeviceKind::cpu}, DType::fp64};
  RunConfig config = config_of(golden, fp64);
  Forecaster forecaster = forecaster_of(config, plain_fields(config), fp64.device);
  Parameters& parameters = forecaster.parameters();
  for (const NamedParameter& p : parameters.named()) parameters.weight(p).set_values(golden.values("weight." + p.name));
  Batch batch = pairs_of(golden, fp64.device);
  CHECK_THROWS_WITH(forecaster.input().input_of(batch), testing::ContainsSubstring("gives no tensor time"));
  batch["time"] = load(golden, "planes", fp64.device, DType::fp64);
  const Pass pass = run(forecaster, forecaster.input().input_of(batch), forecaster.input().target_of(batch));
  check_exact("output", pass.output, golden.values("output"));
  check_exact("loss", pass.loss, golden.values("loss.relative_l2"));
  for (const NamedParameter& p : parameters.named())
    check_exact("gradient of " + p.name, pass.gradients.at(p.name), golden.values("gradient." + p.name),
                largest(golden.values("gradient." + scale_name(p.name))));
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
  const Arithmetic fp64{{DeviceKind::cpu}, DType::fp64};
  RunConfig config = config_of(golden, fp64);
  FieldsInfo grid = plain_fields(config);
  grid.statistics = {golden.values("mean"), golden.values("std")};
  Forecaster forecaster = forecaster_of(config, grid, fp64.device);
  read_model(kGolden + "vit_weights.safetensors", forecaster);
  Tensor input = forecaster.input().input_of({{"input", load(golden, "initial", Device{}).view({1, 4, 6, 10})}});
  std::vector<double> steps;
  for (int step = 0; step < 4; ++step) {
    const Tensor forecast = forecaster.forecast(input);
    const std::vector<double> normalized = forecast.to_vector();
    const std::size_t pixels = normalized.size() / 4;
    for (std::size_t i = 0; i < normalized.size(); ++i)
      steps.push_back(normalized[i] * grid.statistics.stds[i / pixels] + grid.statistics.means[i / pixels]);
    input = forecaster.input().input_after(forecast, {});
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

TEST_CASE("a forecast that was recorded is not continued") {
  const Golden golden("forecast");
  const Arithmetic fp32{{DeviceKind::cpu}, DType::fp32};
  RunConfig config = config_of(golden, fp32);
  const Forecaster forecaster = forecaster_of(config, plain_fields(config), fp32.device);
  const Tensor input = forecaster.input().input_of({{"input", load(golden, "initial", Device{}).view({1, 4, 6, 10})}});
  Tape tape;
  const TapeScope recording(tape);
  const Tensor forecast = forecaster.forecast(input);
  REQUIRE(forecast.tracked());
  CHECK_THROWS_WITH(forecaster.input().input_after(forecast, {}), testing::ContainsSubstring("must not be recorded"));
}

TEST_CASE("lower precisions err at most twice as much as PyTorch in the same precision") {
  const Golden golden("vit");
  const std::vector<std::string> names = golden.parameters();
  const Golden weights("vit_weights");
  for (const Arithmetic arithmetic : low_precisions()) {
    const std::string yardstick = std::string("yardstick.") + name_of(arithmetic.dtype) + ".";
    INFO(name_of(arithmetic.dtype) << " on " << name_of(arithmetic.device.kind));
    const Pass pass = run_vit(golden, arithmetic);
    check_budget("output", pass.output, golden.values("output"), golden.values(yardstick + "output")[0]);
    check_budget("loss", pass.loss, golden.values("loss.relative_l2"), golden.values(yardstick + "loss")[0]);
    const std::vector<double> gradients = golden.values(yardstick + "gradients"),
                              update = golden.values(yardstick + "update");
    for (std::size_t i = 0; i < names.size(); ++i)
      check_budget("gradient of " + names[i], pass.gradients.at(names[i]), golden.values("gradient." + names[i]),
                   gradients[2 * i], norm(golden.values("gradient." + scale_name(names[i]))));

    // Adam divides a gradient by its own size, so that a rounding error can turn a single small update around: the ten
    // updates are compared as one vector over all parameters.
    const Training training = train(golden, arithmetic, "adam");
    std::vector<double> errors, changes, allowed;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i].find("attn.k.bias") != std::string::npos) continue;
      const std::vector<double> expected = golden.values("adam." + names[i]), start = weights.values(names[i]);
      REQUIRE(finite(training.weights.at(names[i])));
      errors.push_back(norm(difference(training.weights.at(names[i]), expected)));
      changes.push_back(norm(difference(expected, start)));
      allowed.push_back(update[2 * i] * changes.back());
    }
    INFO("update: relative error " << norm(errors) / norm(changes) << ", PyTorch's " << norm(allowed) / norm(changes));
    CHECK(norm(errors) <= 2 * norm(allowed) + 0x1p-24 * norm(changes));
  }
}

}  // namespace isobar
