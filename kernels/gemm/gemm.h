// gemm - matrix product with optional bias and GELU:  C = act(op(A) · op(B) + bias)
//
//   A     [m, k], or stored [k, m] if transpose_a     in_dtype, row-major, rows contiguous
//   B     [k, n], or stored [n, k] if transpose_b     in_dtype (a PyTorch Linear weight [out, in] is transpose_b)
//   C     [m, n]                                      out_dtype, written, or added to if mode is accumulate
//   bias  [n]                                         bias_dtype, or null: accumulator_of(in_dtype); on a GPU also
//                                                     out_dtype, which cuBLASLt needs
//   pre   [m, n]                                      out_dtype, or null: op(A)·op(B) + bias before the activation
//   a_sums [m]                                        accumulator_of(in_dtype), or null: written, the sum over k of
//                                                     op(A)'s rows; if op(A) is dyᵀ, the gradient of a bias
//
//   dtypes        in: fp32, bf16, fp16, fp64 (CPU);  out: the same as in, or fp32
//   numerics      products accumulate in fp32 (fp64 for fp64); bias and activation are applied before the one rounding
//                 of each output. Exceptions. CUDA: a GELU follows the rounding of `pre`, but for one by tanh with a
//                 bf16 output, whose tanh errs by up to 2^-11; the bias of a 16-bit output is first rounded to that
//                 type. bf16 on a CPU with AMX: a GELU follows the rounding to out_dtype. bf16 with AVX512_BF16:
//                 operands and sums below 2^-126 count as zero. tf32 lets the GPU round fp32 inputs to 10 mantissa
//                 bits; the CPU ignores it
//   deterministic yes, for a fixed number of threads. On a GPU: yes, if cuBLASLt uses the same algorithm. Its first
//                 guess is repeatable; algorithms.h can also fix the choice
//   limits        m, n >= 0; k >= 1; bias and activation need mode overwrite; a_sums: on a GPU only, with transpose_a,
//                 an fp32 output, and no bias and no activation
//   aliasing      none
#pragma once

#include <cstdint>

#include "kernels/common/activation.h"
#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/grad.h"
#include "kernels/common/kernel.h"

namespace isobar {

struct GemmArgs {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  DType in_dtype = DType::fp32, out_dtype = DType::fp32, bias_dtype = accumulator_of(in_dtype);
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* c = nullptr;
  void* pre = nullptr;
  void* a_sums = nullptr;
  Activation activation = Activation::none;
  Grad mode = Grad::overwrite;
  bool tf32 = false;
};

constexpr Cost gemm_cost(const GemmArgs& g) {
  const double m = g.m, n = g.n, k = g.k;
  const double outputs = g.pre != nullptr ? 2 : 1;
  return {.bytes = (m * k + k * n) * size_of(g.in_dtype) + m * n * size_of(g.out_dtype) * outputs,
          .flops = 2 * m * n * k};
}

ISOBAR_KERNEL(gemm, GemmArgs)

}  // namespace isobar
