// column_sum on CUDA, in two stages: blocks of 256 columns x a range of rows write partial sums, then these are added
// in a fixed order. Few rows need no second stage.
#include "kernels/column_sum.h"

#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/partial_sums.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 8, kLanes = 32, kGroups = 8;
constexpr int kTileColumns = kChunk * kLanes;
constexpr std::int64_t kMinRows = 2 * kColumnSumRows;  // worth a block of their own

// Block (x, y) sums rows [y·rows_per_block, ...) of its columns; each of the eight warps takes every eighth row.
__global__ void __launch_bounds__(kLanes* kGroups)
    column_sum_kernel(std::int64_t rows, std::int64_t cols, std::int64_t rows_per_block, Input x, float* out,
                      bool accumulate) {
  __shared__ float group_sum[kGroups][kTileColumns];
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  const std::int64_t tile = std::int64_t{blockIdx.x} * kTileColumns;
  const std::int64_t first_row = blockIdx.y * rows_per_block;
  const std::int64_t end_row = min(rows, first_row + rows_per_block);

  const std::int64_t column = tile + lane * kChunk;
  const int count = static_cast<int>(min(std::int64_t{kChunk}, cols - column));
  float sum[kChunk] = {};
  if (count > 0) {
    for (std::int64_t row = first_row + group; row < end_row; row += kGroups) {
      float v[kChunk];
      load(x, row * cols + column, count, v);
      for (int k = 0; k < kChunk; ++k) sum[k] += v[k];
    }
  }
  for (int k = 0; k < kChunk; ++k) group_sum[group][lane * kChunk + k] = sum[k];
  __syncthreads();

  const std::int64_t mine = tile + threadIdx.x;
  if (mine < cols) {
    float& target = out[blockIdx.y * cols + mine];
    float total = accumulate ? target : 0.0f;
    for (int g = 0; g < kGroups; ++g) total += group_sum[g][threadIdx.x];
    target = total;
  }
}

}  // namespace

void column_sum(const ColumnSum& a, Stream stream) {
  static_assert(kTileColumns == kLanes * kGroups, "a thread a column in the last step");
  require_cuda_dtypes("column_sum", a.dtype);
  if (a.cols == 0) return;
  const int row_blocks = a.rows == 0 ? 1 : blocks_for(a.rows, kMinRows, grid_limit(kColumnSumBlocks));
  const std::int64_t rows_per_block = ceil_div(a.rows, row_blocks);
  const bool direct = row_blocks == 1;
  float* const out = static_cast<float*>(a.out);
  float* const partial = direct ? out : static_cast<float*>(a.workspace);
  launch("column_sum", column_sum_kernel, dim3(blocks_for(a.cols, kTileColumns, 1 << 30), row_blocks),
         dim3(kLanes * kGroups), 0, stream, a.rows, a.cols, rows_per_block, input<kChunk>(a.x, a.dtype, a.cols),
         partial, direct && a.mode == Grad::accumulate);
  if (!direct) partial_sums("column_sum: partial sums", partial, row_blocks, a.cols, out, a.mode, stream);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
