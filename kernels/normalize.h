// normalize - raw fields to network input, and back
//
//   normalize     y[b, v] = (x[b, v] - mean[v]) / std[v]   for v < channels;  y[b, channels + e] = planes[b, e]
//   denormalize   y[b, v] = x[b, v] · std[v] + mean[v]
//
//   x (normalize), y (denormalize)   [B, V, LAT, LON]          fp32, as in the files
//   y (normalize)                    [B, V + extra, LAT, LON]  dtype: fp32 or fp64 (CPU)
//   x (denormalize)                  [B, V, LAT, LON]          dtype: fp32 or fp64 (CPU)
//   mean, std [V], planes [B, extra]                           fp64, on the device
//
//   numerics      fp32: mean and std are rounded to fp32, then one subtraction and one division, as in NumPy on fp32
//                 arrays; fp64: all in fp64
//   errors        any other dtype
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
  const double elements = static_cast<double>(a.batch) * a.channels * a.height * a.width;
  return {.bytes = elements * (size_of(a.dtype) + 4.0), .flops = 2 * elements};
}

ISOBAR_KERNEL(normalize, NormalizeArgs)
ISOBAR_KERNEL(denormalize, DenormalizeArgs)

}  // namespace isobar
