// The ladder of layer norm on a GPU. Compiled by nvcc, and by the host compiler against the emulator
// (bench/ladder/emulated.cc).
#include "bench/ladder/layernorm.h"
#include "kernels/common/check.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

unsigned blocks_of(std::int64_t rows, std::int64_t rows_per_block) {
  return static_cast<unsigned>((rows + rows_per_block - 1) / rows_per_block);
}

// ---- 1. a thread for each row ---------------------------------------------------------------------------------------

// The plain loops of the CPU, with one thread in place of the loop over rows.
//
// The 32 lanes of a warp read the same column of 32 rows: addresses that lie cols · 4 bytes apart. A GPU reads memory
// in sectors of 32 bytes, so every load of the warp fetches 32 sectors, 1024 bytes, to use 128. And 4050 rows are
// 4050 threads, where a large GPU holds more than 200,000.
constexpr int kRowThreads = 128;

__global__ void thread_per_row_kernel(LayernormRungArgs a) {
  const std::int64_t row = global_thread();
  if (row >= a.rows) return;
  const float* x = a.x + row * a.cols;
  float* y = a.y + row * a.cols;

  float sum = 0;
  for (std::int64_t c = 0; c < a.cols; ++c) sum += x[c];
  const float mean = sum / static_cast<float>(a.cols);

  float squares = 0;
  for (std::int64_t c = 0; c < a.cols; ++c) squares += (x[c] - mean) * (x[c] - mean);
  const float rstd = 1.0f / sqrtf(squares / static_cast<float>(a.cols) + a.eps);

  for (std::int64_t c = 0; c < a.cols; ++c) y[c] = (x[c] - mean) * rstd * a.weight[c] + a.bias[c];
  a.mean[row] = mean;
  a.rstd[row] = rstd;
}

// ---- 2. a warp for each row -----------------------------------------------------------------------------------------

// Lane i takes columns i, i + 32, i + 64, ...: the lanes of one load are neighbours in memory, 128 bytes in 4 sectors,
// all of them used ("coalesced"). Each lane has a part of the sum; warp_sum adds the 32 parts by five shuffles
// (__shfl_xor_sync, kernels/cuda/reduce.h), without shared memory and without a barrier. There are 32 times as many
// threads as in rung 1. The row is still read three times; the second and third time it comes from the first-level
// cache.
constexpr int kWarpsPerBlock = 4;

__global__ void warp_per_row_kernel(LayernormRungArgs a) {
  const std::int64_t row = global_thread() / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (row >= a.rows) return;  // the whole warp leaves, so that no lane is missing from a shuffle
  const float* x = a.x + row * a.cols;
  float* y = a.y + row * a.cols;

  float sum = 0;
  for (std::int64_t c = lane; c < a.cols; c += kWarpSize) sum += x[c];
  const float mean = warp_sum(sum) / static_cast<float>(a.cols);

  float squares = 0;
  for (std::int64_t c = lane; c < a.cols; c += kWarpSize) squares += (x[c] - mean) * (x[c] - mean);
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.cols) + a.eps);

  for (std::int64_t c = lane; c < a.cols; c += kWarpSize) y[c] = (x[c] - mean) * rstd * a.weight[c] + a.bias[c];
  if (lane == 0) {
    a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
}

// ---- 3. a block for each row, in registers --------------------------------------------------------------------------

// Each thread reads four neighbouring columns by one 16-byte load (a chunk; `load` and `store` of kernels/cuda/array.h
// also handle the ragged end of a row) and keeps them in registers: x is read once. A quarter of the load instructions
// is left, and each warp has four times as many bytes on the way. The array `kept` must be indexed by constants to live
// in registers, hence the unrolled loops over slots, whose number bounds the length of a row.
//
// block_sum adds the warps' sums through shared memory and costs two barriers, at which the warps wait for each other.
constexpr int kChunk = 4, kBlockThreads = 128, kSlots = 8;
static_assert(kChunk * kBlockThreads * kSlots == kLadderMaxCols);

struct BlockPerRow {
  std::int64_t rows, cols;
  float eps;
  Input x, weight, bias;
  Output y;
  float *mean, *rstd;
};

__global__ void __launch_bounds__(kBlockThreads) block_per_row_kernel(BlockPerRow a) {
  const std::int64_t row = blockIdx.x, start = row * a.cols;
  const auto column_of = [](int slot) { return (std::int64_t{slot} * kBlockThreads + threadIdx.x) * kChunk; };
  const auto count_of = [&](std::int64_t column) {  // how many columns of a chunk the row has
    return static_cast<int>(min(max(a.cols - column, std::int64_t{0}), std::int64_t{kChunk}));
  };
  float kept[kSlots][kChunk];

  float sum = 0;
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    const std::int64_t column = column_of(slot);
    load(a.x, start + column, count_of(column), kept[slot]);  // zeros beyond the end of the row
    for (const float x : kept[slot]) sum += x;
  }
  const float mean = block_sum(sum) / static_cast<float>(a.cols);

  float squares = 0;
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    const int count = count_of(column_of(slot));
    for (int k = 0; k < kChunk; ++k) squares += k < count ? (kept[slot][k] - mean) * (kept[slot][k] - mean) : 0.0f;
  }
  const float rstd = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(a.cols) + a.eps);

#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    const std::int64_t column = column_of(slot);
    const int count = count_of(column);
    float weight[kChunk], bias[kChunk], y[kChunk];
    load(a.weight, column, count, weight);
    load(a.bias, column, count, bias);
    for (int k = 0; k < kChunk; ++k) y[k] = (kept[slot][k] - mean) * rstd * weight[k] + bias[k];
    store(a.y, start + column, count, y);
  }
  if (threadIdx.x == 0) {
    a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
}

}  // namespace

// ---- launch ---------------------------------------------------------------------------------------------------------

void ladder_thread_per_row(const LayernormRungArgs& a, Stream stream) {
  launch("ladder_thread_per_row", thread_per_row_kernel, dim3(blocks_of(a.rows, kRowThreads)), dim3(kRowThreads), 0,
         stream, a);
}

void ladder_warp_per_row(const LayernormRungArgs& a, Stream stream) {
  launch("ladder_warp_per_row", warp_per_row_kernel, dim3(blocks_of(a.rows, kWarpsPerBlock)),
         dim3(kWarpsPerBlock * kWarpSize), 0, stream, a);
}

void ladder_block_per_row(const LayernormRungArgs& a, Stream stream) {
  ISOBAR_CHECK(a.cols <= kLadderMaxCols, "ladder_block_per_row keeps rows of up to ", kLadderMaxCols,
               " columns in registers, not ", a.cols);
  const BlockPerRow block = {.rows = a.rows,
                             .cols = a.cols,
                             .eps = a.eps,
                             .x = input<kChunk>(a.x, DType::fp32, a.cols),
                             .weight = input<kChunk>(a.weight, DType::fp32),
                             .bias = input<kChunk>(a.bias, DType::fp32),
                             .y = output<kChunk>(a.y, DType::fp32, a.cols),
                             .mean = a.mean,
                             .rstd = a.rstd};
  launch("ladder_block_per_row", block_per_row_kernel, dim3(blocks_of(a.rows, 1)), dim3(kBlockThreads), 0, stream,
         block);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
