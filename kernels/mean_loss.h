// mean_loss - losses that are means over all points and channels, and their gradients
//
//   pred    [points, >= C]  dtype, one of fp32, bf16, fp16, fp64 (CPU); a row has pred_stride elements
//   target  [points, >= C]  accumulator_of(dtype); a row has target_stride elements
//   e = pred - target; D[p] = |exp(14·pred[p, 0]) - exp(14·target[p, 0])|: channel 0 may be ln(density)/14
//
//   sums    sums[c] = Σ_p e² (squared) or Σ_p |e| (absolute); sums[C] = Σ_p D[p], 0 unless with_density
//   finish  loss = Σ_c sums[c] / (points·C) + density_weight · sums[C] / points
//   bwd     dpred = *upstream · dloss/dpred; where e = 0 that of |e| and of D is 0
//
//   sums      [C + 1]  fp64
//   loss      [1]             accumulator_of(dtype)
//   upstream  [1]             accumulator_of(dtype) or null (1)
//   dpred     [points, C]     dpred_dtype: dtype; or 16 bits if pred is fp32, for products that read it in 16 bits
//   workspace (sums) mean_loss_workspace(channels) bytes
//
//   numerics      fp32 differences and exponentials; sums in fp64 (fp64 only for fp64); dpred is rounded once
//   deterministic yes: no atomics, blocks added in order
//   limits        1 <= C <= 128; strides >= C
//   aliasing      none
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

enum class ErrorKind : std::uint8_t { squared, absolute };

inline constexpr std::int64_t kMeanLossBlocks = 512;    // max partial sums
inline constexpr std::int64_t kMeanLossChannels = 128;  // max
inline constexpr double kDensityScale = 14;             // a density is exp(14·x)

struct MeanLossSumsArgs {
  ErrorKind kind = ErrorKind::squared;
  bool with_density = false;
  std::int64_t points = 0, channels = 0, pred_stride = 0, target_stride = 0;
  DType dtype = DType::fp32;
  const void* pred = nullptr;
  const void* target = nullptr;
  double* sums = nullptr;
  void* workspace = nullptr;
};

struct MeanLossFinishArgs {
  std::int64_t points = 0, channels = 0;
  double density_weight = 0;
  DType dtype = DType::fp32;  // of pred
  const double* sums = nullptr;
  void* loss = nullptr;
};

struct MeanLossBwdArgs {
  ErrorKind kind = ErrorKind::squared;
  std::int64_t points = 0, channels = 0;  // strides are C
  double density_weight = 0;
  DType dtype = DType::fp32, dpred_dtype = DType::fp32;
  const void* pred = nullptr;
  const void* target = nullptr;
  const void* upstream = nullptr;
  void* dpred = nullptr;
};

constexpr std::size_t mean_loss_workspace(std::int64_t channels) {
  return static_cast<std::size_t>(kMeanLossBlocks * (channels + 1)) * sizeof(double);
}
constexpr Cost mean_loss_sums_cost(const MeanLossSumsArgs& a) {
  const double n = static_cast<double>(a.points) * a.channels;
  return {.bytes = n * (size_of(a.dtype) + size_of(accumulator_of(a.dtype))),
          .flops = 3 * n + (a.with_density ? 20.0 * a.points : 0)};
}
constexpr Cost mean_loss_finish_cost(const MeanLossFinishArgs& a) {
  return {.bytes = (a.channels + 1.0) * sizeof(double) + size_of(accumulator_of(a.dtype)), .flops = a.channels + 4.0};
}
constexpr Cost mean_loss_bwd_cost(const MeanLossBwdArgs& a) {
  const double n = static_cast<double>(a.points) * a.channels;
  return {.bytes = n * (size_of(a.dtype) + size_of(a.dpred_dtype) + size_of(accumulator_of(a.dtype))),
          .flops = 3 * n + (a.density_weight != 0 ? 25.0 * a.points : 0)};
}

// Throw an Error, "mean_loss_sums: ...", for arguments that the contract does not promise. The kernels ask first.
void check_mean_loss(const MeanLossSumsArgs& arguments);
void check_mean_loss(const MeanLossBwdArgs& arguments);

ISOBAR_KERNEL(mean_loss_sums, MeanLossSumsArgs)
ISOBAR_KERNEL(mean_loss_finish, MeanLossFinishArgs)
ISOBAR_KERNEL(mean_loss_bwd, MeanLossBwdArgs)

}  // namespace isobar
