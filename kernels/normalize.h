// normalize - raw fields to network input, and back
//
//   normalize     y[b, c] = (x[b, c] - mean[c]) / std[c]   for c < channels;  y[b, channels + e] = planes[b, e]
//   denormalize   y[b, c] = x[b, c] · std[c] + mean[c]
//
//   x (normalize), y (denormalize)   [B, C, H, W]          fp32: as the files hold them
//   y (normalize)                    [B, C + extra, H, W]  dtype: fp32 or fp64 (CPU)
//   x (denormalize)                  [B, C, H, W]          dtype: fp32 or fp64 (CPU)
//   mean, std [C], planes [B, extra]                       fp64, on the device
//
//   numerics      fp32: mean and std are rounded to fp32, then one subtraction and one division, as NumPy does it on
//                 fp32 arrays; fp64: all in fp64
//   errors        a dtype other than these
//   deterministic yes
//   aliasing      none
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

struct NormalizeArgs {
  std::int64_t batch = 0, channels = 0, extra = 0, height = 0, width = 0;
  DType dtype = DType::fp32;
  const float* x = nullptr;
  const double* mean = nullptr;
  const double* std = nullptr;
  const double* planes = nullptr;
  void* y = nullptr;
};

struct DenormalizeArgs {
  std::int64_t batch = 0, channels = 0, height = 0, width = 0;
  DType dtype = DType::fp32;
  const void* x = nullptr;
  const double* mean = nullptr;
  const double* std = nullptr;
  float* y = nullptr;
};

constexpr Cost normalize_cost(const NormalizeArgs& a) {
  const double pixels = static_cast<double>(a.batch) * a.height * a.width;
  return {.bytes = pixels * (a.channels * 4.0 + (a.channels + a.extra) * static_cast<double>(size_of(a.dtype))),
          .flops = 2 * pixels * a.channels};
}
constexpr Cost denormalize_cost(const DenormalizeArgs& a) {
  const double n = static_cast<double>(a.batch) * a.channels * a.height * a.width;
  return {.bytes = n * (size_of(a.dtype) + 4.0), .flops = 2 * n};
}

ISOBAR_KERNEL(normalize, NormalizeArgs)
ISOBAR_KERNEL(denormalize, DenormalizeArgs)

}  // namespace isobar
