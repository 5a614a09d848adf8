// column_sum on CUDA. A thread adds the same few columns, 16 bytes of a row, of several rows that it loads together. If
// there are many rows, sixteen neighbouring threads take a row; blocks of rows write partial sums, which are then added
// in a fixed order. If there are few rows, all threads of a block take the same row, and there are no partial sums.
#include "kernels/column_sum.h"

#include <algorithm>

#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/partial_sums.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kThreads = 256, kResident = 3;  // kResident: blocks per multiprocessor
// Min rows for sixteen threads per row, and for a block of its own.
constexpr int kManyRows = 64;

// The rows and columns of this thread of block (x, y): every kGroups-th of the block's rows from `row` on.
template <int kChunk, int kLanes>
struct Share {
  static constexpr int kGroups = kThreads / kLanes, kTile = kLanes * kChunk;
  std::int64_t row, end_row, column;

  __device__ Share(std::int64_t rows, std::int64_t rows_per_block)
      : row(blockIdx.y * rows_per_block + threadIdx.x / kLanes),
        end_row(min(rows, blockIdx.y * rows_per_block + rows_per_block)),
        column(std::int64_t{blockIdx.x} * kTile + threadIdx.x % kLanes * kChunk) {}
};

// Adds the sums of all groups of a block and writes them to its row of `out`.
template <class S, int kChunk>
__device__ __forceinline__ void write_sums(const S& share, std::int64_t cols, const float (&sum)[kChunk], float* out,
                                           bool accumulate) {
  __shared__ __align__(16) float of_group[S::kGroups][S::kTile];
  const int at = static_cast<int>(share.column % S::kTile), group = static_cast<int>(threadIdx.x) * kChunk / S::kTile;
  store_chunk<kChunk>(&of_group[group][at], sum);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < S::kTile; i += kThreads) {
    const std::int64_t column = std::int64_t{blockIdx.x} * S::kTile + i;
    if (column >= cols) return;
    float& target = out[blockIdx.y * cols + column];
    float total = accumulate ? target : 0.0f;
    for (int g = 0; g < S::kGroups; ++g) total += of_group[g][i];
    target = total;
  }
}

template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads, kResident)
    column_sum_kernel(std::int64_t rows, std::int64_t cols, std::int64_t rows_per_block, const T* x, float* out,
                      bool accumulate) {
  constexpr int kChunk = 16 / sizeof(T), kRowsAtOnce = 8;
  using Mine = Share<kChunk, kLanes>;
  const Mine mine(rows, rows_per_block);
  float sum[kChunk] = {};
  if (mine.column < cols) {
    const std::int64_t step = Mine::kGroups * cols;  // elements to the next row
    const T* from = x + mine.row * cols + mine.column;
    for (std::int64_t row = mine.row; row < mine.end_row;
         row += kRowsAtOnce * Mine::kGroups, from += kRowsAtOnce * step) {
      const int left = static_cast<int>(min(mine.end_row - row, std::int64_t{kRowsAtOnce} * Mine::kGroups));
      Chunk<T, kChunk> chunk[kRowsAtOnce];
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        chunk[i] = {};
        if (i * Mine::kGroups < left) chunk[i] = load_chunk<kChunk>(from + i * step);
      }
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        for (int k = 0; k < kChunk; ++k) sum[k] += to_float(chunk[i].value[k]);
      }
    }
  }
  write_sums(mine, cols, sum, out, accumulate);
}

// For rows that are not aligned.
__global__ void __launch_bounds__(kThreads)
    any_column_sum_kernel(std::int64_t rows, std::int64_t cols, std::int64_t rows_per_block, Input x, float* out,
                          bool accumulate) {
  constexpr int kChunk = 8;
  using Mine = Share<kChunk, kWarpSize>;
  const Mine mine(rows, rows_per_block);
  const int count = static_cast<int>(min(std::int64_t{kChunk}, cols - mine.column));
  float sum[kChunk] = {};
  if (count > 0) {
    for (std::int64_t row = mine.row; row < mine.end_row; row += Mine::kGroups) {
      float v[kChunk];
      load(x, row * cols + mine.column, count, v);
      for (int k = 0; k < kChunk; ++k) sum[k] += v[k];
    }
  }
  write_sums(mine, cols, sum, out, accumulate);
}

// The number of row blocks that fills the device, for a number of column blocks; at most `limit`.
int row_blocks_for(std::int64_t rows, int column_blocks, std::int64_t limit) {
  const std::int64_t resident = std::int64_t{multiprocessors()} * kResident;
  const std::int64_t wanted = std::max<std::int64_t>(1, resident / column_blocks);
  return rows <= kManyRows ? 1 : blocks_for(rows, kManyRows, grid_limit(std::min(wanted, limit)));
}

// How many neighbouring rows, at least, are whole chunks together: x is as well [rows / r, r * cols], whose sums are
// [r, cols]. 1 where short rows do not divide so.
std::int64_t rows_in_chunks(const ColumnSumArgs& a, int chunk) {
  if (a.cols >= kShortRow || a.rows <= kManyRows * chunk) return 1;
  std::int64_t together = 1;
  while (together * a.cols % chunk != 0) together *= 2;
  return a.rows % together == 0 ? together : 1;
}

}  // namespace

void column_sum(const ColumnSumArgs& a, Stream stream) {
  require_cuda_dtypes("column_sum", a.dtype);
  if (a.cols == 0) return;
  float* const out = static_cast<float*>(a.out);
  // `together` rows of x are one of `rows`.
  const auto start = [&](auto kernel, int tile, std::int64_t together, auto x) {
    const std::int64_t rows = a.rows / together, cols = a.cols * together;
    const int column_blocks = blocks_for(cols, tile, 1 << 30);
    const int row_blocks = row_blocks_for(rows, column_blocks, column_sum_blocks(a.cols) / together);
    const bool direct = row_blocks == 1 && together == 1;
    float* const partial = direct ? out : static_cast<float*>(a.workspace);
    launch("column_sum", kernel, dim3(column_blocks, row_blocks), dim3(kThreads), 0, stream, rows, cols,
           ceil_div(rows, row_blocks), x, partial, direct && a.mode == Grad::accumulate);
    if (!direct)
      partial_sums("column_sum: partial sums", static_cast<int>(row_blocks * together), a.cols, a.mode, stream,
                   PartialSums{partial, out});
  };
  visit_cuda_floating(a.dtype, [&]<class T>(Type<T>) {
    constexpr int kChunk = 16 / sizeof(T);
    const std::int64_t together = rows_in_chunks(a, kChunk);
    if (!chunks_are_aligned<kChunk>(a.x, a.dtype, a.cols * together))
      return start(any_column_sum_kernel, 8 * kWarpSize, 1, input<8>(a.x, a.dtype, a.cols));
    const T* x = static_cast<const T*>(a.x);
    if (a.rows <= kManyRows) return start(column_sum_kernel<T, kThreads>, kThreads * kChunk, 1, x);
    start(column_sum_kernel<T, 16>, 16 * kChunk, together, x);
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
