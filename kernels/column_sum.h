// column_sum - sum over rows:  out[c] (+)= sum_r x[r, c]        the gradient of a bias, and of a position embedding
//
//   x    [rows, cols]  dtype          out  [cols]  accumulator_of(dtype)
//   workspace          column_sum_workspace(rows, cols, dtype) bytes, contents undefined before and after
//
//   numerics      partial sums in fp32 (fp64 for fp64) over blocks of rows, added in block order
//   deterministic yes: no atomics (the number of blocks depends on the GPU)
//   limits        rows, cols >= 0; rows == 0 gives zeros (Grad::accumulate: out does not change)
//   aliasing      none
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/grad.h"
#include "kernels/common/kernel.h"
#include "kernels/common/math.h"

namespace isobar {

// Rows are summed in blocks of at least kColumnSumRows, at most column_sum_blocks of them: more where a row is short.
inline constexpr std::int64_t kColumnSumRows = 32, kColumnSumBlocks = 256, kShortRow = 64;
constexpr std::int64_t column_sum_blocks(std::int64_t cols) {
  return kColumnSumBlocks * (cols > 0 && cols < kShortRow ? kShortRow / cols : 1);
}

struct ColumnSumArgs {
  std::int64_t rows = 0, cols = 0;
  DType dtype = DType::fp32;
  const void* x = nullptr;
  void* out = nullptr;
  Grad mode = Grad::overwrite;
  void* workspace = nullptr;
};

constexpr std::size_t column_sum_workspace(std::int64_t rows, std::int64_t cols, DType dtype) {
  const std::int64_t blocks = ceil_div(rows, kColumnSumRows);
  const std::int64_t kept = blocks < column_sum_blocks(cols) ? blocks : column_sum_blocks(cols);
  return static_cast<std::size_t>(kept * cols) * size_of(accumulator_of(dtype));
}
constexpr Cost column_sum_cost(const ColumnSumArgs& a) {
  const double elements = static_cast<double>(a.rows) * a.cols;
  return {.bytes = elements * size_of(a.dtype) + a.cols * 4.0, .flops = elements};
}

ISOBAR_KERNEL(column_sum, ColumnSumArgs)

}  // namespace isobar
