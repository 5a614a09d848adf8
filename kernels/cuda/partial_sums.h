// partial_sums - the second stage of a sum over rows: out[c] (+)= sum_b partial[b, c] in fp32, in a fixed order
#pragma once

#include <cstdint>

#include "kernels/common/grad.h"
#include "kernels/common/stream.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

struct PartialSums {
  const float* partial;  // [blocks, cols]
  float* out;            // [cols]
};

template <int kSums>
struct PartialSumsArgs {
  PartialSums sums[kSums];
};

// A block has 32 columns, and groups of interleaved rows.
inline constexpr int kPartialColumns = 32, kPartialGroups = 16;

// The grid's y is over the sums.
template <int kSums, bool kAccumulate>
__global__ void __launch_bounds__(kPartialColumns* kPartialGroups)
    partial_sums_kernel(PartialSumsArgs<kSums> together, int blocks, std::int64_t cols) {
  __shared__ float group_sum[kPartialGroups][kPartialColumns];
  const auto [partial, out] = together.sums[blockIdx.y];
  const int lane = threadIdx.x % kPartialColumns, group = threadIdx.x / kPartialColumns;
  const std::int64_t column = std::int64_t{blockIdx.x} * kPartialColumns + lane;
  float sum = 0;
  if (column < cols) {
#pragma unroll 8
    for (int b = group; b < blocks; b += kPartialGroups) sum += partial[b * cols + column];
  }
  group_sum[group][lane] = sum;
  __syncthreads();
  if (group == 0 && column < cols) {
    float total = kAccumulate ? out[column] : 0.0f;
    for (int g = 0; g < kPartialGroups; ++g) total += group_sum[g][lane];
    out[column] = total;
  }
}

// One or more sums of the same size in one launch: partial_sums(name, blocks, cols, mode, stream, {partial, out}, ...).
// blocks may be 0.
template <class... More>
void partial_sums(const char* name, int blocks, std::int64_t cols, Grad mode, Stream stream, PartialSums first,
                  More... more) {
  if (cols == 0) return;
  constexpr int kSums = 1 + sizeof...(More);
  const auto kernel = mode == Grad::accumulate ? partial_sums_kernel<kSums, true> : partial_sums_kernel<kSums, false>;
  launch(name, kernel, dim3(blocks_for(cols, kPartialColumns, 1 << 30), kSums), dim3(kPartialColumns * kPartialGroups),
         0, stream, PartialSumsArgs<kSums>{{first, more...}}, blocks, cols);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
