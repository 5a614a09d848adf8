// Compares a model with PyTorch's results for it (tests/golden/README.md): in fp64 to 1e-10, in lower precisions by the
// 2x rule, on every device of this machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/config.h"
#include "apps/train/trainer.h"
#include "engine/tape.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/runtime.h"
#include "models/task.h"
#include "tests/harness/golden_file.h"
#include "tests/harness/testing.h"

namespace isobar::testing {

inline constexpr double kExact = 1e-10;

struct Arithmetic {
  Device device;
  DType dtype;
};

inline constexpr Arithmetic kFp64{{DeviceKind::cpu}, DType::fp64};

// The precisions that can run here: fp32, bf16 and fp16, on the CPU, with the emulated CUDA kernels, and on a GPU.
inline std::vector<Arithmetic> low_precisions() {
  std::vector<Arithmetic> all;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    all.push_back({{DeviceKind::cpu}, dtype});
    // If the CPU's instructions are emulated, only the CPU is under test.
    if (ISOBAR_HAS_EMULATOR && !cpu::is_emulated(cpu::bf16_products())) all.push_back({{DeviceKind::emulator}, dtype});
    if (gpu::device_count() > 0) all.push_back({{DeviceKind::cuda}, dtype});
  }
  return all;
}

// The golden config with the keys of an arithmetic, and `more`.
inline ConfigEntries golden_entries(const Golden& golden, Arithmetic arithmetic, const nlohmann::json& more = {}) {
  nlohmann::ordered_json all = golden.metadata("config");
  all["dtype"] = arithmetic.dtype == DType::fp64 ? "fp64" : "fp32";
  all["amp_mode"] = is_16_bit(arithmetic.dtype) ? name_of(arithmetic.dtype) : "none";
  all["tf32"] = false;
  if (!more.is_null()) all.update(more);
  return entries_from(all, "golden");
}

// The config keys for the golden training's updates; plain Adam has no decay, warmup or clipping.
inline nlohmann::json training_keys(const Golden& golden, const std::string& optimizer) {
  const nlohmann::json training = golden.metadata("training");
  nlohmann::json keys{{"optimizer", optimizer}};
  for (const char* key : {"lr", "num_iters", "betas", "eps"}) keys[key] = training[key];
  if (optimizer == "adamw")
    for (const char* key : {"weight_decay", "warmup", "grad_clip"}) keys[key] = training[key];
  return keys;
}

// fp16 gradients carry a factor; isobar uses PyTorch's.
inline double loss_scale_of(const Golden& golden, Arithmetic arithmetic) {
  return arithmetic.dtype == DType::fp16 ? golden.metadata("training")["loss_scale"].get<double>() : 1;
}

// A tensor of the golden file, on the device.
inline Tensor load(const Golden& golden, const std::string& name, Device device, DType dtype = DType::fp32) {
  Tensor tensor = Tensor::empty(golden.shape(name), dtype, device);
  tensor.set_values(golden.values(name));
  return tensor;
}

inline double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

inline double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

inline std::vector<double> difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  std::vector<double> out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

inline bool finite(const std::vector<double>& x) {
  return std::all_of(x.begin(), x.end(), [](double value) { return std::isfinite(value); });
}

// Largest difference relative to the largest value.
inline void check_exact(const std::string& what, const std::vector<double>& got, const std::vector<double>& expected,
                        double scale = 0) {
  INFO(what);
  REQUIRE(finite(got));
  const double error = largest(difference(got, expected)) / (scale > 0 ? scale : largest(expected));
  INFO("relative error " << error);
  CHECK(error <= kExact);
}

// ‖got - expected‖ may be twice PyTorch's own error in the same precision, plus one rounding of the result.
inline void check_budget(const std::string& what, const std::vector<double>& got, const std::vector<double>& expected,
                         double yardstick, double scale = 0) {
  INFO(what);
  REQUIRE(finite(got));
  const double error = norm(difference(got, expected)) / (scale > 0 ? scale : norm(expected));
  const double budget = 2 * yardstick + 0x1p-24;
  INFO("relative error " << error << ", " << 100 * error / budget << " % of the budget");
  CHECK(error <= budget);
}

// In exact arithmetic the gradient of a key bias is 0, so its error is measured relative to the query bias's gradient.
// Adam divides such a gradient of rounding noise by its own size: the update of a key bias has no exact value.
inline bool is_key_bias(const std::string& name) {
  return name.ends_with("attn.k.bias");
}
inline std::string scale_name(const std::string& name) {
  return is_key_bias(name) ? name.substr(0, name.size() - std::string("k.bias").size()) + "q.bias" : name;
}

using NamedValues = std::map<std::string, std::vector<double>>;

// Of a whole parameter, in the order of files.
inline std::vector<double> values_in_files(const NamedParameter& p, const Tensor& values) {
  return to_file_order(values.to(Device{}), p.full_shape, p.order).to_vector();
}

// The gradients of a recorded loss, for every parameter.
inline NamedValues gradients_of(Parameters& parameters, Tape& tape, const Tensor& loss, double loss_scale = 1) {
  parameters.begin_step();
  Tensor upstream = Tensor::empty({1}, loss.dtype(), loss.device());
  upstream.set_values({loss_scale});
  tape.backward(loss, upstream);
  parameters.finish_gradients();
  NamedValues gradients;
  for (const NamedParameter& p : parameters.named()) {
    std::vector<double> gradient = values_in_files(p, parameters.grad(p));
    for (double& value : gradient) value /= loss_scale;
    gradients[p.name] = std::move(gradient);
  }
  return gradients;
}

inline void check_exact_gradients(const Golden& golden, const NamedValues& gradients) {
  for (const auto& [name, gradient] : gradients)
    check_exact("gradient of " + name, gradient, golden.values("gradient." + name),
                largest(golden.values("gradient." + scale_name(name))));
}

// How PyTorch's error of a tensor counts. strict: as it is. typical_of_vectors: to that of a bias or a norm's weight,
// few numbers and so one draw of noise, the typical error of all of them is added.
enum class Yardstick : std::uint8_t { strict, typical_of_vectors };

// `yardstick` is a prefix such as yardstick.bf16.; its gradients are in the order of `parameters` in the metadata.
inline void check_gradient_budgets(const Golden& golden, const NamedValues& gradients, const std::string& yardstick,
                                   Yardstick kind = Yardstick::strict) {
  const std::vector<std::string> names = golden.parameters();
  const std::vector<double> yard = golden.values(yardstick + "gradients");
  REQUIRE(names.size() == gradients.size());
  // PyTorch's error of a tensor. A key bias's error is one draw of noise; the query bias's error gives its typical
  // size.
  const auto yard_of = [&](const std::string& name) {
    return yard[2 * static_cast<std::size_t>(std::ranges::find(names, name) - names.begin())];
  };
  const auto is_vector = [&](const std::string& name) { return golden.shape("gradient." + name).size() == 1; };
  double squares = 0, vectors = 0;
  for (const std::string& name : names)
    if (is_vector(name) && !is_key_bias(name)) squares += yard_of(name) * yard_of(name), ++vectors;
  const double typical = kind == Yardstick::typical_of_vectors && vectors > 0 ? std::sqrt(squares / vectors) : 0;
  for (const std::string& name : names)
    check_budget("gradient of " + name, gradients.at(name), golden.values("gradient." + name),
                 std::hypot(std::max(yard_of(name), yard_of(scale_name(name))), is_vector(name) ? typical : 0),
                 norm(golden.values("gradient." + scale_name(name))));
}

// num_iters updates on one batch: the final weights, and the logged numbers.
struct Training {
  NamedValues weights;
  std::vector<double> losses, grad_norms, rates;
};

inline Training train(Task& task, const TrainerOptions& options, const Batch& batch) {
  Trainer trainer(task, options);
  const auto loaded = std::make_shared<const LoadedBatch>(LoadedBatch{.at = {}, .samples = {}, .tensors = batch});
  Training result;
  for (std::int64_t i = 0; i < options.schedule.num_iters; ++i) {
    const StepResult step = trainer.step([&] { return loaded; });
    if (!step.applied) --i;  // an fp16 step whose gradients overflowed does not count
    if (!step.applied) continue;
    result.losses.push_back(step.loss);
    result.grad_norms.push_back(step.grad_norm);
    result.rates.push_back(step.lr);
  }
  for (const NamedParameter& p : task.parameters().named())
    result.weights[p.name] = values_in_files(p, task.parameters().weight(p));
  return result;
}

inline void check_exact_training(const Golden& golden, const Training& training, const std::string& optimizer) {
  check_exact(optimizer + " losses", training.losses, golden.values(optimizer + ".losses"));
  check_exact(optimizer + " norms", training.grad_norms, golden.values(optimizer + ".grad_norms"));
  check_exact(optimizer + " rates", training.rates, golden.values(optimizer + ".rates"));
  for (const std::string& name : golden.parameters())
    if (!is_key_bias(name))
      check_exact(optimizer + " " + name, training.weights.at(name), golden.values(optimizer + "." + name));
}

// Adam divides a gradient by its own size, so that a rounding error can reverse a single small update. So the updates
// are compared as one vector over all parameters. start: the initial weights.
inline void check_update_budget(const Golden& golden, const Training& training, const NamedValues& start,
                                const std::string& optimizer, const std::string& yardstick) {
  const std::vector<std::string> names = golden.parameters();
  const std::vector<double> yard = golden.values(yardstick + "update");
  std::vector<double> errors, changes, allowed;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (is_key_bias(names[i])) continue;
    const std::vector<double> expected = golden.values(optimizer + "." + names[i]);
    REQUIRE(finite(training.weights.at(names[i])));
    errors.push_back(norm(difference(training.weights.at(names[i]), expected)));
    changes.push_back(norm(difference(expected, start.at(names[i]))));
    allowed.push_back(yard[2 * i] * changes.back());
  }
  INFO("update: relative error " << norm(errors) / norm(changes) << ", PyTorch's " << norm(allowed) / norm(changes));
  CHECK(norm(errors) <= 2 * norm(allowed) + 0x1p-24 * norm(changes));
}

}  // namespace isobar::testing
