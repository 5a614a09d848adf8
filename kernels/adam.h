// adam - Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019) over flat buffers, in one launch
//
//   g = grad · grad_scale
//   decoupled:  w -= lr·weight_decay·w   for elements below decay_end      (AdamW)
//   else:       g += weight_decay·w      for elements below decay_end      (Adam with L2)
//   m = beta1·m + (1-beta1)·g;   v = beta2·v + (1-beta2)·g²
//   w -= lr / bias1 · m / (√v/√bias2 + eps),     bias1 = 1 - beta1ᵗ, bias2 = 1 - beta2ᵗ     (PyTorch's order)
//   compute[i] = w[i] in compute_dtype           (compute may be null: products then read the weights)
//   a += average_rate·(w - a)                    an exponential moving average (average may be null: none is kept)
//
//   weight, grad, m, v  [n]   dtype: fp32 or fp64 (CPU)          compute  [n]  bf16 or fp16, or null
//   average             [n]   dtype, or null
//   grad_scale          [1]   fp64, computed on the device (grad_norm.h). 0: the step is skipped, nothing changes
//
//   numerics      fp32 arithmetic (fp64 for fp64); lr / bias1, √bias2, grad_scale and average_rate are rounded to this
//                 type
//   deterministic yes
//   aliasing      none
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

struct AdamArgs {
  std::int64_t n = 0, decay_end = 0;
  DType dtype = DType::fp32, compute_dtype = DType::bf16;
  double lr = 0, bias1 = 1, bias2 = 1;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;
  const double* grad_scale = nullptr;
  const void* grad = nullptr;
  void* weight = nullptr;
  void* m = nullptr;
  void* v = nullptr;
  void* compute = nullptr;
  double average_rate = 0;
  void* average = nullptr;
};

constexpr Cost adam_cost(const AdamArgs& a) {
  const double n = a.n;
  const double copy = a.compute != nullptr ? size_of(a.compute_dtype) : 0;
  const double buffers = a.average != nullptr ? 9 : 7;
  return {.bytes = n * (buffers * size_of(a.dtype) + copy), .flops = (a.average != nullptr ? 18 : 15) * n};
}

ISOBAR_KERNEL(adam, AdamArgs)

}  // namespace isobar
