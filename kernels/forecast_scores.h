// forecast_scores - the latitude-weighted sums for RMSE and ACC, per sample and variable
//
//   Row i of the grid (a latitude) has the weight w[i]; the sum over j is over its columns.
//   out[b, v, 0] = Σ_i w[i] Σ_j (p - t)²          RMSE = √(out0 / (LAT·LON)) if the weights have mean 1
//   out[b, v, 1] = Σ_i w[i] Σ_j p'·t'             p' = p - clim, t' = t - clim   (clim null: 0)
//   out[b, v, 2] = Σ_i w[i] Σ_j p'²               ACC = out1 / √(out2·out3), uncentred
//   out[b, v, 3] = Σ_i w[i] Σ_j t'²
//
//   masked: points may be missing. A NaN of the target is one: whatever the forecast and the climatology are there, no
//   sum has it. m is 1 where a point is present, 0 where it is missing; the four sums are over m = 1, and
//   out[b, v, 4] = Σ_i w[i] Σ_j m               RMSE = √(out0 / (LAT·LON · out4 / (out4 + out5))), ACC as above
//   out[b, v, 5] = Σ_i w[i] Σ_j (1 - m)         no score if out4 is 0: all points are missing
//   The divisor is out4 if the weights have mean 1, and LAT·LON to the last bit if no point is missing. All is linear
//   in the sums of bands of rows. The four sums have the bits of the kernel without a mask if no point is missing.
//
//   pred [B, V, LAT, LON]  dtype: fp32, bf16, fp16, fp64 (CPU)           target [B, V, LAT, LON]  accumulator_of(dtype)
//   row_weights [LAT], climatology [V, LAT, LON]  accumulator_of(dtype)  out    [B, V, 4]  fp64; masked: [B, V, 6]
//
//   numerics      fp32 products (fp64 for fp64), summed in fp32 within a row, in fp64 across rows
//   deterministic yes
//   aliasing      none
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

// The numbers of a sample and variable in `out`.
constexpr std::int64_t forecast_scores_of(bool masked) {
  return masked ? 6 : 4;
}

struct ForecastScoresArgs {
  std::int64_t batch = 0, channels = 0, height = 0, width = 0;
  bool masked = false;
  DType dtype = DType::fp32;
  const void* pred = nullptr;
  const void* target = nullptr;
  const void* row_weights = nullptr;
  const void* climatology = nullptr;
  double* out = nullptr;
};

constexpr Cost forecast_scores_cost(const ForecastScoresArgs& a) {
  const double n = static_cast<double>(a.batch) * a.channels * a.height * a.width;
  return {.bytes = n * (size_of(a.dtype) + size_of(accumulator_of(a.dtype))), .flops = (a.masked ? 13 : 12) * n};
}

ISOBAR_KERNEL(forecast_scores, ForecastScoresArgs)

}  // namespace isobar
