// grad_norm - Euclidean norm of a flat buffer, and the factor that clips and unscales it
//
//   grad_norm:        *norm = √Σ x²      (NaN or Inf wherever an element is NaN or Inf)
//   clip_coefficient: with n = *norm · unscale:  *grad_scale = 0                                   if n is not finite
//                                                *grad_scale = unscale · min(1, max_norm/(n+1e-6))  else
//                     max_norm 0: no clip
//
//   x  [n]  fp32 or fp64 (CPU)         norm, grad_scale  [1] fp64 on the device (grad_scale: the field of AdamScalars)
//   workspace  kGradNormBlocks doubles
//
//   numerics      squares and sums in fp64
//   deterministic yes: one partial sum a block, added in block order
//   aliasing      none
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/device.h"
#include "kernels/common/dtype.h"

namespace isobar {

inline constexpr std::int64_t kGradNormBlocks = 512;

struct GradNorm {
  std::int64_t n = 0;
  DType dtype = DType::fp32;
  const void* x = nullptr;
  double* norm = nullptr;
  double* workspace = nullptr;
};

struct ClipCoefficient {
  const double* norm = nullptr;
  double unscale = 1, max_norm = 0;
  double* grad_scale = nullptr;
};

constexpr Cost grad_norm_cost(const GradNorm& a) {
  return {.bytes = 1.0 * a.n * size_of(a.dtype), .flops = 2.0 * a.n};
}

ISOBAR_KERNEL(grad_norm, GradNorm)
ISOBAR_KERNEL(clip_coefficient, ClipCoefficient)

}  // namespace isobar
