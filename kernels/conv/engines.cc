#include "kernels/conv/engines.h"

#if ISOBAR_HAS_CUDA

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/common/notices.h"
#include "kernels/conv/cudnn.h"
#include "kernels/conv/engine_kernels.h"
#include "kernels/conv/own.h"
#include "kernels/cuda/timing.h"
#include "kernels/elementwise.h"

namespace isobar::cuda {
namespace {

constexpr const char* kOwn = "own";
constexpr const char* kOwnKernels = "own kernels";

// ---- Words ----------------------------------------------------------------------------------------------------------

std::string across_axes(const ConvShape& s, std::int64_t ConvAxis::*number) {
  return concat(s.axes[0].*number, " x ", s.axes[1].*number, " x ", s.axes[2].*number);
}

// The end of every key.
std::string chosen_from(const std::string& engines) {
  return concat(", of ", engines);
}

// The text of a problem in files, for any device.
std::string in_words(const ConvProblem& p) {
  const ConvShape& s = p.shape;
  const std::string engines = conv_engines({DeviceKind::cuda, p.device});
  return concat(name_of(p.kind), ", ", s.batch, " x ", across_axes(s, &ConvAxis::in), " x ", s.in_channels, " to ",
                across_axes(s, &ConvAxis::out), " x ", s.out_channels, ", kernel ", across_axes(s, &ConvAxis::kernel),
                ", stride ", across_axes(s, &ConvAxis::stride), ", padding ", across_axes(s, &ConvAxis::pad), ", ",
                name_of(p.dtype), " to ", name_of(p.out_dtype), p.tf32 ? ", tf32" : "", ", aligned to ", p.x_alignment,
                ' ', p.weight_alignment, ' ', p.y_alignment, chosen_from(engines));
}

// ---- State between calls --------------------------------------------------------------------------------------------

struct Choice {
  SharedCudnnPlan plan;    // null: the own kernels
  bool is_chosen = false;  // given or timed, or there is nothing to choose from; else it is the library's first one
};

// State of one device.
struct Choices {
  std::map<ConvProblem, Choice> met;
  ConvAlgorithms given;
  std::map<std::string, bool> judged;  // by the convolution's words and the engine's text: whether it is right
  std::mutex choosing;                 // one thread at a time chooses: all threads use the same engine
};

// No thread waits for the device, or launches, while it holds the mutex.
struct Cache {
  std::mutex mutex;
  std::map<int, Choices> choices;  // by device; elements never move

  Choices& of(int device) {
    const std::lock_guard lock(mutex);
    return choices[device];
  }
};

Cache& cache() {
  static auto* instance = new Cache;  // cuDNN may be gone when the program ends
  return *instance;
}

// ---- A convolution as all engines take it ---------------------------------------------------------------------------

std::int64_t elements(const ConvProblem& p, ConvKind written) {
  return written == ConvKind::fwd ? p.shape.y() : written == ConvKind::bwd_data ? p.shape.x() : p.shape.weight();
}

std::size_t bytes(const ConvProblem& p, ConvKind written) {
  return static_cast<std::size_t>(elements(p, written)) * size_of(p.kind == written ? p.out_dtype : p.dtype);
}

void*& written_of(ConvOperands& operands, ConvKind kind) {
  return kind == ConvKind::fwd ? operands.y : kind == ConvKind::bwd_data ? operands.x : operands.weight;
}

// The own kernel of `run`, with the workspace that it wants.
template <class Args>
void run_own(Args a, std::size_t workspace_bytes, void (*run)(const Args&, Stream), int device, Stream stream) {
  const Scratch workspace(workspace_bytes, device, stream);
  a.workspace = workspace.data();
  run(a, stream);
}

void run_own(const ConvProblem& p, const ConvOperands& o, Stream stream) {
  if (p.kind == ConvKind::fwd) {
    const ConvFwdArgs a{.shape = p.shape,
                        .dtype = p.dtype,
                        .out_dtype = p.out_dtype,
                        .x = o.x,
                        .weight = o.weight,
                        .y = o.y,
                        .tf32 = p.tf32};
    return run_own(a, conv_fwd_workspace(a), own_conv_fwd, p.device, stream);
  }
  if (p.kind == ConvKind::bwd_data) {
    const ConvBwdDataArgs a{.shape = p.shape,
                            .dtype = p.dtype,
                            .out_dtype = p.out_dtype,
                            .dy = o.y,
                            .weight = o.weight,
                            .dx = o.x,
                            .tf32 = p.tf32};
    return run_own(a, conv_bwd_data_workspace(a), own_conv_bwd_data, p.device, stream);
  }
  const ConvBwdWeightArgs a{
      .shape = p.shape, .dtype = p.dtype, .x = o.x, .dy = o.y, .dweight = o.weight, .tf32 = p.tf32};
  run_own(a, conv_bwd_weight_workspace(a), own_conv_bwd_weight, p.device, stream);
}

// Empty, or why the engine could not.
std::string start(const CudnnPlan& plan, const ConvProblem& p, const ConvOperands& operands, Stream stream) {
  try {
    const Scratch workspace(plan.workspace_bytes(), p.device, stream);
    return plan.start(operands, workspace.data(), stream);
  } catch (const gpu::OutOfMemory& error) {
    return error.what();
  }
}

// ---- The judgement of an engine -------------------------------------------------------------------------------------

// The relative distance that two right engines may have. Both sum in fp32, in any order, and round once.
double max_distance(const ConvProblem& p) {
  if (p.out_dtype == DType::bf16) return 0x1p-6;
  if (p.out_dtype == DType::fp16 || p.dtype != DType::fp32 || p.tf32) return 0x1p-9;
  return 0x1p-16;  // an engine that rounds to TF32 is at 2^-12; sums of a million terms in fp32 are at 2^-17
}

// Operands that are drawn for a problem, and what the own kernels make of them. It takes memory as long as it lives.
class Trial {
 public:
  Trial(const ConvProblem& p, Stream stream)
      : problem_(p),
        stream_(stream),
        x_(bytes(p, ConvKind::bwd_data), p.device, stream),
        weight_(bytes(p, ConvKind::bwd_weight), p.device, stream),
        y_(bytes(p, ConvKind::fwd), p.device, stream),
        right_(bytes(p, p.kind), p.device, stream),
        sums_((2 + kSquaredDistanceWorkspace) * sizeof(double), p.device, stream) {
    for (const auto& [written, data] :
         {std::pair(ConvKind::bwd_data, x_.data()), std::pair(ConvKind::bwd_weight, weight_.data()),
          std::pair(ConvKind::fwd, y_.data())})
      if (written != p.kind)
        draw_evenly(
            {.n = elements(p, written), .dtype = p.dtype, .seed = static_cast<std::uint64_t>(written), .x = data},
            stream);
    ConvOperands operands = this->operands();
    written_of(operands, p.kind) = right_.data();
    run_own(p, operands, stream);
  }

  ConvOperands operands() const { return {x_.data(), weight_.data(), y_.data()}; }

  // How far what an engine has made of the operands is from what the own kernels make of them; NaN where one is.
  double distance() const {
    ConvOperands operands = this->operands();
    auto* const sums = static_cast<double*>(sums_.data());
    squared_distance({.n = elements(problem_, problem_.kind),
                      .dtype = problem_.out_dtype,
                      .a = written_of(operands, problem_.kind),
                      .b = right_.data(),
                      .sums = sums,
                      .workspace = sums + 2},
                     stream_);
    const Device device{DeviceKind::cuda, problem_.device};
    std::array<double, 2> apart_and_size{};
    gpu::copy(apart_and_size.data(), sums, sizeof apart_and_size, device, stream_);
    gpu::synchronize(device, stream_);
    const auto [apart, size] = apart_and_size;
    return apart == 0 ? 0 : std::sqrt(apart / size);
  }

 private:
  ConvProblem problem_;
  Stream stream_;
  Scratch x_, weight_, y_, right_, sums_;
};

// Made when it is first needed.
class LazyTrial {
 public:
  LazyTrial(const ConvProblem& p, Stream stream) : problem_(p), stream_(stream) {}
  const Trial& get() {
    if (!trial_) trial_.emplace(problem_, stream_);
    return *trial_;
  }

 private:
  const ConvProblem& problem_;
  Stream stream_;
  std::optional<Trial> trial_;
};

// Whether the engine runs and gives what the own kernels give. Asked once.
bool is_right(const CudnnPlan& plan, const ConvProblem& p, const std::string& words, LazyTrial& trial, Stream stream) {
  std::map<std::string, bool>& judged = cache().of(p.device).judged;
  const std::string key = concat(words, ": ", plan.text());
  if (const auto found = judged.find(key); found != judged.end()) return found->second;
  const std::string failure = start(plan, p, trial.get().operands(), stream);
  const double distance = failure.empty() ? trial.get().distance() : 0;
  const bool is_near = distance <= max_distance(p);  // false for NaN
  if (!failure.empty())
    notice(concat(plan.text(), " is not used for ", words, ": it cannot run: ", failure));
  else if (!is_near)
    notice(concat(plan.text(), " is not used for ", words, ": its result is ", distance,
                  " from that of isobar's own kernels, relative to its size, and may be ", max_distance(p)));
  return judged[key] = failure.empty() && is_near;
}

// ---- The choice -----------------------------------------------------------------------------------------------------

// Of the own kernels where `plan` is null; infinite if it cannot run.
double milliseconds_of(const SharedCudnnPlan& plan, const ConvProblem& p, const Trial& trial, Stopwatch& stopwatch,
                       double min_so_far, Stream stream) {
  return stopwatch.best_of(
      [&] {
        if (plan != nullptr) return start(*plan, p, trial.operands(), stream).empty();
        run_own(p, trial.operands(), stream);
        return true;
      },
      min_so_far);
}

// The fastest of cuDNN's engines and the own kernels, among those that are right.
SharedCudnnPlan fastest(const ConvProblem& p, const std::string& words, LazyTrial& trial, Stream stream) {
  std::vector<SharedCudnnPlan> plans;
  for_each_cudnn_plan(p, /*may_compile=*/true, [&](const SharedCudnnPlan& plan) {
    const bool is_known = std::any_of(plans.begin(), plans.end(), [&](const SharedCudnnPlan& other) {
      return other->text() == plan->text();  // both of the library's lists may name it
    });
    if (!is_known) plans.push_back(plan);
    return plans.size() < kCandidates;
  });
  if (plans.empty()) return nullptr;
  Stopwatch of_own(stream), of_engines(stream);
  double min_so_far = milliseconds_of(nullptr, p, trial.get(), of_own, std::numeric_limits<double>::infinity(), stream);
  SharedCudnnPlan best;
  for (const SharedCudnnPlan& plan : plans) {
    if (of_engines.spent() > kMaxMilliseconds && best != nullptr) break;
    if (!is_right(*plan, p, words, trial, stream)) continue;
    const double milliseconds = milliseconds_of(plan, p, trial.get(), of_engines, min_so_far, stream);
    if (milliseconds >= min_so_far) continue;
    min_so_far = milliseconds;
    best = plan;
  }
  return best;
}

// The first engine that is right.
SharedCudnnPlan first(const ConvProblem& p, const std::string& words, LazyTrial& trial, Stream stream) {
  SharedCudnnPlan found;
  for_each_cudnn_plan(p, /*may_compile=*/false, [&](const SharedCudnnPlan& plan) {
    if (is_right(*plan, p, words, trial, stream)) found = plan;
    return found == nullptr;
  });
  return found;
}

std::string given_for(const std::string& words, int device) {
  const std::lock_guard lock(cache().mutex);
  const ConvAlgorithms& given = cache().choices[device].given;
  const auto found = given.find(words);
  return found == given.end() ? "" : found->second;
}

Choice choose_engine(const ConvProblem& p, const std::string& words, const std::string& given, bool times,
                     Stream stream) {
  LazyTrial trial(p, stream);
  if (!given.empty())
    if (const SharedCudnnPlan plan = cudnn_plan_of(p, given);
        plan != nullptr && is_right(*plan, p, words, trial, stream))
      return {plan, true};
  if (times) return {fastest(p, words, trial, stream), true};
  return {first(p, words, trial, stream), false};
}

Choice choose(const ConvProblem& p, bool times, Stream stream) {
  if (conv_engines({DeviceKind::cuda, p.device}) == kOwnKernels) return {nullptr, true};
  const std::string words = in_words(p), given = given_for(words, p.device);
  if (given == kOwn) return {nullptr, true};
  try {
    return choose_engine(p, words, given, times, stream);
  } catch (const gpu::OutOfMemory& error) {  // the convolution itself may need less than a trial
    notice(concat("no engine of cuDNN is used for ", words, ": it cannot be tried: ", error.what()));
    return {nullptr, times};
  }
}

std::optional<Choice> met(const ConvProblem& p) {
  const std::lock_guard lock(cache().mutex);
  const auto& known = cache().choices[p.device].met;
  const auto found = known.find(p);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

SharedCudnnPlan plan_for(const ConvProblem& p, Stream stream) {
  const std::lock_guard one_at_a_time(cache().of(p.device).choosing);
  const std::optional<Choice> known = met(p);
  if (known && known->is_chosen) return known->plan;
  const bool times = may_time(p.device, stream);
  if (known && !times) return known->plan;
  if (gpu::is_captured(stream)) return nullptr;
  const Choice choice = choose(p, times, stream);
  const std::lock_guard lock(cache().mutex);
  cache().choices[p.device].met[p] = choice;
  return choice.plan;
}

// ---- A call ---------------------------------------------------------------------------------------------------------

std::uint32_t alignment_of(const void* pointer) {
  std::uint32_t bytes = kConvAlignment;
  while (reinterpret_cast<std::uintptr_t>(pointer) % bytes != 0) bytes /= 2;
  return bytes;
}

int current_device() {
  int device = 0;
  const cudaError_t status = cudaGetDevice(&device);
  ISOBAR_CHECK(status == cudaSuccess, "conv: CUDA could not name the current device: ", cudaGetErrorString(status));
  return device;
}

ConvProblem problem_of(ConvKind kind, const ConvShape& shape, DType dtype, DType out_dtype, bool tf32,
                       const ConvOperands& operands) {
  return {.device = current_device(),
          .kind = kind,
          .shape = shape,
          .dtype = dtype,
          .out_dtype = out_dtype,
          .tf32 = tf32 && dtype == DType::fp32,
          .x_alignment = alignment_of(operands.x),
          .weight_alignment = alignment_of(operands.weight),
          .y_alignment = alignment_of(operands.y)};
}

void run(const CudnnPlan& plan, const ConvProblem& p, const ConvOperands& operands, Stream stream) {
  const std::string failure = start(plan, p, operands, stream);
  ISOBAR_CHECK(failure.empty(), name_of(p.kind), ": cuDNN's ", plan.text(), " could not run: ", failure);
}

// cuDNN's engines overwrite: what is to be added goes through memory of its own.
bool compute(const ConvProblem& p, ConvOperands operands, Grad mode, Stream stream) {
  if (!cudnn_knows(p)) return false;
  const SharedCudnnPlan plan = plan_for(p, stream);
  if (plan == nullptr) return false;
  if (mode == Grad::overwrite) {
    run(*plan, p, operands, stream);
    return true;
  }
  const Scratch apart(bytes(p, p.kind), p.device, stream);
  void* const sum = std::exchange(written_of(operands, p.kind), apart.data());
  run(*plan, p, operands, stream);
  add({.n = elements(p, p.kind),
       .a_dtype = p.out_dtype,
       .b_dtype = p.out_dtype,
       .y_dtype = p.out_dtype,
       .a = sum,
       .b = apart.data(),
       .y = sum},
      stream);
  return true;
}

void finish(std::int64_t n, std::int64_t channels, DType dtype, const void* bias, Pointwise activation, void* y,
            Stream stream) {
  if (bias == nullptr && activation == Pointwise::none) return;
  conv_epilogue({.n = n,
                 .channels = channels,
                 .dtype = dtype,
                 .bias = static_cast<const float*>(bias),
                 .activation = activation,
                 .y = y},
                stream);
}

}  // namespace

std::string conv_engines(Device device) {
  const std::string name = cudnn_name(device.index);
  return name.empty() ? kOwnKernels : name;
}

bool are_of_these_engines(const ConvAlgorithms& algorithms, Device device) {
  if (algorithms.empty()) return true;  // then the library need not be loaded
  const std::string end = chosen_from(conv_engines(device));
  return std::all_of(algorithms.begin(), algorithms.end(),
                     [&](const auto& entry) { return entry.first.ends_with(end); });
}

void use_conv_algorithms(Device device, ConvAlgorithms algorithms) {
  const std::lock_guard lock(cache().mutex);
  cache().choices[device.index].given = std::move(algorithms);
  cache().choices[device.index].met.clear();
}

ConvAlgorithms conv_algorithms_in_use(Device device) {
  std::map<ConvProblem, Choice> all;
  {
    const std::lock_guard lock(cache().mutex);
    all = cache().choices[device.index].met;
  }
  ConvAlgorithms in_use;
  for (const auto& [problem, choice] : all)
    if (choice.is_chosen) in_use[in_words(problem)] = choice.plan == nullptr ? kOwn : choice.plan->text();
  return in_use;
}

bool conv_by_cudnn(const ConvFwdArgs& a, Stream stream) {
  const ConvOperands operands{const_cast<void*>(a.x), const_cast<void*>(a.weight), a.y};
  const ConvProblem p = problem_of(ConvKind::fwd, a.shape, a.dtype, a.out_dtype, a.tf32, operands);
  if (!compute(p, operands, Grad::overwrite, stream)) return false;
  finish(a.shape.y(), a.shape.out_channels, a.out_dtype, a.bias, a.activation, a.y, stream);
  return true;
}

bool conv_by_cudnn(const ConvBwdDataArgs& a, Stream stream) {
  const ConvOperands operands{a.dx, const_cast<void*>(a.weight), const_cast<void*>(a.dy)};
  const ConvProblem p = problem_of(ConvKind::bwd_data, a.shape, a.dtype, a.out_dtype, a.tf32, operands);
  if (!compute(p, operands, a.mode, stream)) return false;
  finish(a.shape.x(), a.shape.in_channels, a.out_dtype, a.bias, a.activation, a.dx, stream);
  return true;
}

bool conv_by_cudnn(const ConvBwdWeightArgs& a, Stream stream) {
  const ConvOperands operands{const_cast<void*>(a.x), a.dweight, const_cast<void*>(a.dy)};
  const ConvProblem p = problem_of(ConvKind::bwd_weight, a.shape, a.dtype, DType::fp32, a.tf32, operands);
  return compute(p, operands, a.mode, stream);
}

}  // namespace isobar::cuda

#endif
