// gelu - activation and its gradient, element by element
//
//   fwd   y = gelu(x)              bwd   dx = dy · gelu'(x)          x, y, dy, dx  [n]  dtype
//
//   kinds         gelu_erf: x·Φ(x);  gelu_tanh: 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
//   numerics      computed in fp32 (fp64 for fp64); one rounding, at the store. On the CPU erf and tanh are polynomials
//                 of fp32 accuracy (a few ulp); fp64 uses libm
//   deterministic yes
//   aliasing      y may be x; dx may be dy
#pragma once

#include <cstdint>

#include "kernels/common/activation.h"
#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

struct GeluFwdArgs {
  std::int64_t n = 0;
  DType dtype = DType::fp32;
  Activation kind = Activation::gelu_erf;
  const void* x = nullptr;
  void* y = nullptr;
};

struct GeluBwdArgs {
  std::int64_t n = 0;
  DType dtype = DType::fp32;
  Activation kind = Activation::gelu_erf;
  const void* dy = nullptr;
  const void* x = nullptr;
  void* dx = nullptr;
};

constexpr Cost gelu_fwd_cost(const GeluFwdArgs& a) {
  return {.bytes = 2.0 * a.n * size_of(a.dtype), .flops = 10.0 * a.n};
}
constexpr Cost gelu_bwd_cost(const GeluBwdArgs& a) {
  return {.bytes = 3.0 * a.n * size_of(a.dtype), .flops = 20.0 * a.n};
}

ISOBAR_KERNEL(gelu_fwd, GeluFwdArgs)
ISOBAR_KERNEL(gelu_bwd, GeluBwdArgs)

}  // namespace isobar
