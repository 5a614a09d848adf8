// forecast_loss - the losses of a forecast and their gradients
//
//   Indices: sample b, variable v, row i of the grid (a latitude), column j. e = pred - target; r[i] is the weight of a
//   row, a[v] that of a variable (null: all 1). Per sample
//     E[b] = Σ_vij a[v]·r[i]·e²          T[b] = Σ_vij a[v]·r[i]·target²
//     relative_l2           L = mean_b √E / √T     with r = a = 1, whatever is passed   (the NERSC tutorial's)
//     weighted_mse          L = Σ_b E[b] / (B·V·LAT·LON)
//     relative_l2_weighted  L = mean_b √E / √T
//   The fields may be a band of rows of a larger picture. So the forward pass has two steps; between them the caller
//   adds up the sums of all bands:
//     sums    E and T of the given fields
//     finish  L from E and T of whole samples; sample_size is V·LAT·LON of a whole sample
//     bwd     dpred = *upstream · dL/dpred, from E and T of whole samples; if E[b] is 0, the gradient of the norms is 0
//
//   masked: points may be missing. A NaN of the target is one: its weight is 0 whatever the forecast is there, and
//   dpred is 0 there. m is 1 where a point is present, 0 where it is missing. E and T are sums over m = 1, and
//     W[b] = Σ_vij w·m     M[b] = Σ_vij w·(1-m)     w[v, i] = r[i] for weighted_mse, a[v]·r[i] for the norms
//     relative_l2, relative_l2_weighted   L = mean_b √E / √T
//     weighted_mse                        L = mean_b E / (V·LAT·LON · W / (W + M))
//   The denominator is Σ_vij r·m if r has the mean 1, and V·LAT·LON to the last bit if no point is missing: then loss
//   and gradient have the bits of the kernels without a mask. A sample with W = 0 (all points are missing) is left out:
//   mean_b is over the other samples of this batch, and the sample's gradient is 0. If all samples are left out, L is
//   0. All is linear in the sums E, T, W and M, so bands add them up before they go to finish and bwd.
//
//   pred, dpred   [B, V, LAT, LON]       if patch is 0
//                 [B·T, P·P·V]           if patch is P, T = LAT/P · LON/P: rows of patches in the order (r, s, v), see
//                                        kernels/patchify.h, channels last
//   target        [B, V, LAT, LON]  accumulator_of(dtype)
//   dtypes        pred: dtype, one of fp32, bf16, fp16, fp64 (CPU). dpred: dpred_dtype, the same; or 16 bits if pred
//                 is fp32, for products that read it in 16 bits
//   row_weights   [LAT], channel_weights [V]  accumulator_of(dtype) or null; for the given rows and variables
//   sums          [B, 2]  (E, T)  fp64; masked: [B, 4]  (E, T, W, M)
//   loss          [1]             accumulator_of(dtype)
//   upstream      [1]             accumulator_of(dtype) or null (1): the factor on dL, as loss scale / micro-batches
//   workspace     (sums) forecast_loss_workspace(batch, masked) bytes
//
//   numerics      fp32 products; sums in fp32 within a row, in fp64 across rows (fp64 only for fp64); dpred is rounded
//                 once, from fp32
//   deterministic yes: no atomics, blocks added in order
//   limits        LAT and LON are multiples of P
//   aliasing      none
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

enum class LossKind : std::uint8_t { relative_l2, weighted_mse, relative_l2_weighted };

inline constexpr std::int64_t kForecastLossBlocks = 128;  // max partial sums a sample

// The numbers of a sample in `sums`.
constexpr std::int64_t forecast_loss_sums_of(bool masked) {
  return masked ? 4 : 2;
}

struct ForecastLossSumsArgs {
  LossKind kind = LossKind::relative_l2;
  bool masked = false;
  std::int64_t batch = 0, channels = 0, height = 0, width = 0;
  std::int64_t patch = 0;
  DType dtype = DType::fp32;
  const void* pred = nullptr;
  const void* target = nullptr;
  const void* row_weights = nullptr;
  const void* channel_weights = nullptr;
  double* sums = nullptr;
  void* workspace = nullptr;
};

struct ForecastLossFinishArgs {
  LossKind kind = LossKind::relative_l2;
  bool masked = false;
  std::int64_t batch = 0, sample_size = 0;
  DType dtype = DType::fp32;  // of the forecast
  const double* sums = nullptr;
  void* loss = nullptr;
};

struct ForecastLossBwdArgs {
  LossKind kind = LossKind::relative_l2;
  bool masked = false;
  std::int64_t batch = 0, channels = 0, height = 0, width = 0, sample_size = 0;
  std::int64_t patch = 0;
  DType dtype = DType::fp32, dpred_dtype = DType::fp32;
  const void* pred = nullptr;
  const void* target = nullptr;
  const void* row_weights = nullptr;
  const void* channel_weights = nullptr;
  const double* sums = nullptr;
  const void* upstream = nullptr;
  void* dpred = nullptr;
};

constexpr std::size_t forecast_loss_workspace(std::int64_t batch, bool masked = false) {
  return static_cast<std::size_t>(batch * kForecastLossBlocks * forecast_loss_sums_of(masked)) * sizeof(double);
}
constexpr Cost forecast_loss_sums_cost(const ForecastLossSumsArgs& a) {
  const double n = static_cast<double>(a.batch) * a.channels * a.height * a.width;
  return {.bytes = n * (size_of(a.dtype) + size_of(accumulator_of(a.dtype))), .flops = (a.masked ? 8 : 7) * n};
}
constexpr Cost forecast_loss_finish_cost(const ForecastLossFinishArgs& a) {
  const double numbers = static_cast<double>(a.batch) * forecast_loss_sums_of(a.masked);
  return {.bytes = numbers * sizeof(double) + size_of(accumulator_of(a.dtype)), .flops = 2 * numbers};
}
constexpr Cost forecast_loss_bwd_cost(const ForecastLossBwdArgs& a) {
  const double n = static_cast<double>(a.batch) * a.channels * a.height * a.width;
  return {.bytes = n * (size_of(a.dtype) + size_of(a.dpred_dtype) + size_of(accumulator_of(a.dtype))), .flops = 4 * n};
}

ISOBAR_KERNEL(forecast_loss_sums, ForecastLossSumsArgs)
ISOBAR_KERNEL(forecast_loss_finish, ForecastLossFinishArgs)
ISOBAR_KERNEL(forecast_loss_bwd, ForecastLossBwdArgs)

}  // namespace isobar
