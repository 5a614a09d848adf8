// embedding on CUDA. Forward: a thread copies a chunk of a row. Backward: a block owns some rows of the table and
// kTileColumns columns of them, whose sums are in shared memory. It reads all ids, kThreads at a time, and lists those
// that are its own in their order; each warp adds the dy of its rows. No other warp writes these sums, and the order is
// that of the list: the same bits as one thread would get.
#include "kernels/embedding.h"

#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4, kThreads = 256, kWarps = kThreads / kWarpSize;
constexpr int kTileColumns = kWarpSize * kChunk;
// Rows of a block. A small table has few rows a block, so that there are many blocks.
constexpr int kFewRows = kWarps, kManyRows = 64;
constexpr std::int64_t kSmallTable = 8192;
constexpr int kAtOnce = 4;  // rows of dy that a warp loads before it adds them

// ---- forward --------------------------------------------------------------------------------------------------------

struct Forward {
  std::int64_t ids_count, first, rows, cols, chunks;  // chunks of a row
  const std::int32_t* ids;
  Input table;
  Output y;
};

__global__ void __launch_bounds__(kMapThreads) embedding_fwd_kernel(Forward a) {
  for (std::int64_t i = global_thread(); i < a.ids_count * a.chunks; i += global_threads()) {
    const std::int64_t m = i / a.chunks, column = i % a.chunks * kChunk, row = a.ids[m] - a.first;
    const int count = a.cols - column < kChunk ? static_cast<int>(a.cols - column) : kChunk;
    float x[kChunk] = {};
    if (row >= 0 && row < a.rows) load(a.table, row * a.cols + column, count, x);
    store(a.y, m * a.cols + column, count, x);
  }
}

// ---- backward -------------------------------------------------------------------------------------------------------

struct Backward {
  std::int64_t ids_count, first, rows, cols;
  int block_rows;
  const std::int32_t* ids;
  Input dy;
  Output dtable;
  bool accumulate;
};

struct Entry {
  std::int64_t m;
  int row;  // of the block
};

// Lists the ids among [begin, begin + kThreads) that are [first_id, first_id + rows), in their order, and returns their
// number. Has a barrier before it writes the list, whose last readers are then done, and one behind it.
__device__ __forceinline__ int list_own(const Backward& a, std::int64_t begin, std::int64_t first_id, int rows,
                                        Entry* list) {
  __shared__ int of_warp[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int64_t m = begin + threadIdx.x;
  const std::int64_t row = m < a.ids_count ? a.ids[m] - first_id : -1;
  const bool is_own = row >= 0 && row < rows;
  const unsigned own = __ballot_sync(kAllLanes, is_own);
  if (lane == 0) of_warp[warp] = __popc(own);
  __syncthreads();
  int before = __popc(own & ((1u << lane) - 1)), total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += of_warp[w];
    total += of_warp[w];
  }
  if (is_own) list[before] = {m, static_cast<int>(row)};
  __syncthreads();
  return total;
}

// Adds the dy of the listed rows that are this warp's: row r is of warp r % kWarps.
__device__ __forceinline__ void add_listed(const Backward& a, const Entry* list, int listed, std::int64_t column,
                                           float (*sums)[kTileColumns]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int count = a.cols - column < kChunk ? static_cast<int>(a.cols - column) : kChunk;
  if (count <= 0) return;  // this lane has no columns; the lanes of a warp do not meet below
  int next = 0;
  while (next < listed) {
    float x[kAtOnce][kChunk];
    int rows[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      while (next < listed && list[next].row % kWarps != warp) ++next;
      rows[i] = next < listed ? list[next].row : -1;
      if (rows[i] >= 0) load(a.dy, list[next++].m * a.cols + column, count, x[i]);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (rows[i] < 0) continue;
      for (int k = 0; k < kChunk; ++k) sums[rows[i]][lane * kChunk + k] += x[i][k];
    }
  }
}

__global__ void __launch_bounds__(kThreads) embedding_bwd_kernel(Backward a) {
  __shared__ float sums[kManyRows][kTileColumns];
  __shared__ Entry list[kThreads];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int64_t column = std::int64_t{blockIdx.y} * kTileColumns + lane * kChunk;
  const int count = a.cols - column < kChunk ? static_cast<int>(a.cols - column) : kChunk;
  const std::int64_t step = std::int64_t{gridDim.x} * a.block_rows;
  for (std::int64_t first_row = std::int64_t{blockIdx.x} * a.block_rows; first_row < a.rows; first_row += step) {
    const std::int64_t left = a.rows - first_row;
    const int rows = left < a.block_rows ? static_cast<int>(left) : a.block_rows;
    for (int r = warp; r < rows; r += kWarps)
      for (int k = 0; k < count; ++k)
        sums[r][lane * kChunk + k] =
            a.accumulate ? static_cast<const float*>(a.dtable.data)[(first_row + r) * a.cols + column + k] : 0.0f;
    for (std::int64_t begin = 0; begin < a.ids_count; begin += kThreads) {
      const int listed = list_own(a, begin, a.first + first_row, rows, list);
      add_listed(a, list, listed, column, sums);
    }
    for (int r = warp; r < rows && count > 0; r += kWarps) {
      float x[kChunk];
      for (int k = 0; k < kChunk; ++k) x[k] = k < count ? sums[r][lane * kChunk + k] : 0.0f;
      store(a.dtable, (first_row + r) * a.cols + column, count, x);
    }
  }
}

}  // namespace

void embedding_fwd(const EmbeddingFwdArgs& a, Stream stream) {
  require_cuda_dtypes("embedding_fwd", a.dtype, a.y_dtype);
  check_embedding(a);
  const std::int64_t chunks = (a.cols + kChunk - 1) / kChunk;
  if (a.ids_count * chunks == 0) return;
  launch("embedding_fwd", embedding_fwd_kernel,
         dim3(blocks_for(a.ids_count * chunks, kMapThreads, grid_limit(1 << 14))), dim3(kMapThreads), 0, stream,
         Forward{.ids_count = a.ids_count,
                 .first = a.first,
                 .rows = a.rows,
                 .cols = a.cols,
                 .chunks = chunks,
                 .ids = a.ids,
                 .table = input<kChunk>(a.table, a.dtype, a.cols),
                 .y = output<kChunk>(a.y, a.y_dtype, a.cols)});
}

void embedding_bwd(const EmbeddingBwdArgs& a, Stream stream) {
  require_cuda_dtypes("embedding_bwd", a.y_dtype);
  if (a.rows * a.cols == 0) return;
  const int block_rows = a.rows <= kSmallTable ? kFewRows : kManyRows;
  const int tiles = static_cast<int>((a.cols + kTileColumns - 1) / kTileColumns);
  launch("embedding_bwd", embedding_bwd_kernel, dim3(blocks_for(a.rows, block_rows, grid_limit(1 << 14)), tiles),
         dim3(kThreads), 0, stream,
         Backward{.ids_count = a.ids_count,
                  .first = a.first,
                  .rows = a.rows,
                  .cols = a.cols,
                  .block_rows = block_rows,
                  .ids = a.ids,
                  .dy = input<kChunk>(a.dy, a.y_dtype, a.cols),
                  .dtable = output<kChunk>(a.dtable, DType::fp32, a.cols),
                  .accumulate = a.mode == Grad::accumulate});
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
