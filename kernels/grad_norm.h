// grad_norm - Euclidean norm of flat buffers, and the factor that clips and unscales them
//
//   sum_of_squares:   *sum = factor · Σ x²      (NaN or Inf if an element is NaN or Inf)
//   clip_coefficient: *norm = √Σ_i sums[i];  with n = *norm · unscale:
//                     *grad_scale = 0                                    if n is not finite
//                     *grad_scale = unscale · min(1, max_norm/(n+1e-6))  else
//                     max_norm 0: no clipping
//
//   A buffer may be cut into ranges with one sum each, and a process may hold only some of them: the caller adds up the
//   sums of all processes between the two kernels. If k processes hold the same range, each takes 1/k of its sum: the
//   range counts once, and a NaN or Inf in one process makes the total NaN or Inf.
//
//   x  [n]  fp32 or fp64 (CPU)         sum  [1], sums  [count], norm, grad_scale  [1]: fp64 on the device
//   workspace  kSumOfSquaresBlocks doubles
//
//   numerics      squares and sums in fp64
//   deterministic yes: one partial sum per block, added in block order; sums added in their order
//   aliasing      none
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

inline constexpr std::int64_t kSumOfSquaresBlocks = 512;

struct SumOfSquaresArgs {
  std::int64_t n = 0;
  DType dtype = DType::fp32;
  double factor = 1;
  const void* x = nullptr;
  double* sum = nullptr;
  double* workspace = nullptr;
};

struct ClipCoefficientArgs {
  std::int64_t count = 1;
  const double* sums = nullptr;
  double unscale = 1, max_norm = 0;
  double* norm = nullptr;
  double* grad_scale = nullptr;
};

constexpr Cost sum_of_squares_cost(const SumOfSquaresArgs& a) {
  return {.bytes = 1.0 * a.n * size_of(a.dtype), .flops = 2.0 * a.n};
}
constexpr Cost clip_coefficient_cost(const ClipCoefficientArgs& a) {
  return {.bytes = (static_cast<double>(a.count) + 2) * sizeof(double)};
}

ISOBAR_KERNEL(sum_of_squares, SumOfSquaresArgs)
ISOBAR_KERNEL(clip_coefficient, ClipCoefficientArgs)

}  // namespace isobar
