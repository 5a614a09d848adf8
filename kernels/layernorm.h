// layernorm - normalise the last axis, optionally after adding a branch to the residual stream
//
//   fwd   s = x + branch   (s = x when branch is null)
//         y = (s - mean(s)) · rstd · weight + bias,   rstd = 1/√(var(s) + eps),  var the population variance
//   bwd   with g = dy·weight, h = (s - mean)·rstd:   dx = rstd·(g - mean(g) - h·mean(g·h)) + dsum
//         dbranch = dx in the branch's dtype;   dweight[c] (+)= sum_r dy·h,   dbias[c] (+)= sum_r dy
//
//   x, s (`sum`), dsum, dx        [rows, cols]  stream_dtype: fp32, bf16, fp16 or fp64
//   branch, dbranch, y, dy        [rows, cols]  dtype: fp32, bf16, fp16 or fp64
//   weight, bias, dweight, dbias  [cols]        accumulator_of(stream_dtype)
//   mean, rstd                    [rows]        accumulator_of(stream_dtype), saved by the forward
//   workspace (bwd)               layernorm_bwd_workspace(cols, stream_dtype) bytes
//
//   numerics      fp32 arithmetic (fp64 for fp64); two-pass variance. s is stored in stream_dtype. If that is fp32 or
//                 fp64, the unrounded s is normalised; else the rounded one, so that forward and backward see the same
//                 s
//   deterministic yes: partial sums over blocks of rows, added in block order (their number depends on the GPU)
//   dtype pairs   (stream, dtype): equal, or stream fp32 with dtype bf16 or fp16
//   limits        rows >= 0, cols >= 1
//   aliasing      sum may be x; dx may be dsum
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/grad.h"
#include "kernels/common/kernel.h"

namespace isobar {

// Max number of row blocks that have partial dweight and dbias.
inline constexpr std::int64_t kLayernormBlocks = 528;

struct LayernormFwdArgs {
  std::int64_t rows = 0, cols = 0;
  DType stream_dtype = DType::fp32, dtype = DType::fp32;
  double eps = 1e-6;
  const void* x = nullptr;
  const void* branch = nullptr;  // null: nothing is added
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* sum = nullptr;  // null: s is not stored
  void* y = nullptr;
  void* mean = nullptr;
  void* rstd = nullptr;
};

struct LayernormBwdArgs {
  std::int64_t rows = 0, cols = 0;
  DType stream_dtype = DType::fp32, dtype = DType::fp32;
  const void* dy = nullptr;
  const void* x = nullptr;  // s of the forward
  const void* weight = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  const void* dsum = nullptr;  // gradient of s from the residual path; null: none
  void* dx = nullptr;
  void* dbranch = nullptr;  // null: not computed
  void* dweight = nullptr;
  void* dbias = nullptr;
  Grad mode = Grad::overwrite;  // for dweight and dbias
  void* workspace = nullptr;
};

constexpr std::size_t layernorm_bwd_workspace(std::int64_t cols, DType stream_dtype) {
  return static_cast<std::size_t>(2 * kLayernormBlocks * cols) * size_of(accumulator_of(stream_dtype));
}
constexpr Cost layernorm_fwd_cost(const LayernormFwdArgs& a) {
  const double n = static_cast<double>(a.rows) * a.cols;
  double bytes = size_of(a.stream_dtype) + size_of(a.dtype);
  if (a.branch != nullptr) bytes += size_of(a.dtype);
  if (a.sum != nullptr) bytes += size_of(a.stream_dtype);
  return {.bytes = n * bytes + 8.0 * a.rows, .flops = 8 * n};
}
constexpr Cost layernorm_bwd_cost(const LayernormBwdArgs& a) {
  const double n = static_cast<double>(a.rows) * a.cols;
  double bytes = 2 * size_of(a.stream_dtype) + size_of(a.dtype);
  if (a.dsum != nullptr) bytes += size_of(a.stream_dtype);
  if (a.dbranch != nullptr) bytes += size_of(a.dtype);
  return {.bytes = n * bytes + 8.0 * a.rows, .flops = 13 * n};
}

ISOBAR_KERNEL(layernorm_fwd, LayernormFwdArgs)
ISOBAR_KERNEL(layernorm_bwd, LayernormBwdArgs)

}  // namespace isobar
