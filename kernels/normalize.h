// normalize - raw fields to network input, and back
//
//   normalize     y[b, v] = (x[b, v] - mean[v]) / std[v]            for v < channels
//                 y[b, channels + m] = 1 where x[b, masks[m]] is present, 0 where it is missing
//                 y[b, channels + mask_count + e] = planes[b, e]
//   denormalize   y[b, v] = x[b, v] · std[v] + mean[v]
//
//   A point is missing where x is NaN. It stays NaN where `fill` is null or fill[v] is NaN; else it is computed as if x
//   were fill[v], in the units of x. A mask says what x is, whatever it is filled with.
//
//   x (normalize), y (denormalize)   [B, V, LAT, LON]               fp32, as in the files
//   y (normalize)                    [B, V + masks + extra, LAT, LON]  dtype: fp32 or fp64 (CPU)
//   x (denormalize)                  [B, V, LAT, LON]               dtype: fp32 or fp64 (CPU)
//   mean, std [V], planes [B, extra]                                fp64, on the device
//   fill [V]                                                        fp64, on the device, or null
//   masks [mask_count]                                              i32, on the device: channels, each 0 to V - 1
//
//   numerics      fp32: mean and std are rounded to fp32, then one subtraction and one division, as in NumPy on fp32
//                 arrays; fp64: all in fp64. `fill` is rounded as they are
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
  std::int64_t batch = 0, channels = 0, mask_count = 0, extra = 0, height = 0, width = 0;
  DType dtype = DType::fp32;
  const float* x = nullptr;
  const double* mean = nullptr;
  const double* std = nullptr;
  const double* fill = nullptr;
  const std::int32_t* masks = nullptr;
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
  const std::int64_t planes = a.channels + a.mask_count + a.extra;
  return {.bytes = pixels * (a.channels * 4.0 + planes * static_cast<double>(size_of(a.dtype))),
          .flops = 2 * pixels * a.channels};
}
constexpr Cost denormalize_cost(const DenormalizeArgs& a) {
  const double elements = static_cast<double>(a.batch) * a.channels * a.height * a.width;
  return {.bytes = elements * (size_of(a.dtype) + 4.0), .flops = 2 * elements};
}

ISOBAR_KERNEL(normalize, NormalizeArgs)
ISOBAR_KERNEL(denormalize, DenormalizeArgs)

}  // namespace isobar
