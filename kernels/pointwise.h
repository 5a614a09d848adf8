// pointwise - relu, leaky_relu and tanh, element by element, and their gradients from the output
//
//   fwd   y = f(x)              bwd   dx = dy · f'          x, y, dy, dx  [n]  dtype
//
//   kinds         relu: max(x, 0), f' = 1 where y > 0, else 0;  leaky_relu: x where x > 0, else 0.01·x, f' = 1 where
//                 y > 0, else 0.01;  tanh: f' = 1 - y²;  none: y = x, f' = 1
//   numerics      computed in fp32 (fp64 for fp64); one rounding, at the store. f' is that of the stored y. The CPU's
//                 tanh is within 3 ulp in fp32; fp64 uses libm. A NaN stays one
//   deterministic yes
//   aliasing      y may be x; dx may be dy
#pragma once

#include <cstdint>

#include "kernels/common/activation.h"
#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

struct PointwiseFwdArgs {
  std::int64_t n = 0;
  DType dtype = DType::fp32;
  Pointwise kind = Pointwise::none;
  const void* x = nullptr;
  void* y = nullptr;
};

struct PointwiseBwdArgs {
  std::int64_t n = 0;
  DType dtype = DType::fp32;
  Pointwise kind = Pointwise::none;
  const void* dy = nullptr;
  const void* y = nullptr;
  void* dx = nullptr;
};

constexpr Cost pointwise_fwd_cost(const PointwiseFwdArgs& a) {
  return {.bytes = 2.0 * a.n * size_of(a.dtype), .flops = (a.kind == Pointwise::tanh ? 10.0 : 1.0) * a.n};
}
constexpr Cost pointwise_bwd_cost(const PointwiseBwdArgs& a) {
  return {.bytes = 3.0 * a.n * size_of(a.dtype), .flops = (a.kind == Pointwise::tanh ? 3.0 : 1.0) * a.n};
}

ISOBAR_KERNEL(pointwise_fwd, PointwiseFwdArgs)
ISOBAR_KERNEL(pointwise_bwd, PointwiseBwdArgs)

}  // namespace isobar
