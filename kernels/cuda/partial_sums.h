// partial_sums - the second stage of a sum over rows: out[c] (+)= sum_b partial[b, c] in fp32, in a fixed order
#pragma once

#include <cstdint>

#include "kernels/common/device.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

inline constexpr int kPartialColumns = 32, kPartialGroups = 8;  // a block: 32 columns, 8 groups of interleaved rows

template <bool kAccumulate>
__global__ void __launch_bounds__(kPartialColumns* kPartialGroups)
    partial_sums_kernel(const float* partial, int blocks, std::int64_t cols, float* out) {
  __shared__ float group_sum[kPartialGroups][kPartialColumns];
  const int lane = threadIdx.x % kPartialColumns, group = threadIdx.x / kPartialColumns;
  const std::int64_t column = std::int64_t{blockIdx.x} * kPartialColumns + lane;
  float sum = 0;
  if (column < cols) {
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

// partial [blocks, cols], out [cols]; blocks may be 0.
inline void partial_sums(const char* name, const float* partial, int blocks, std::int64_t cols, float* out, Grad mode,
                         Stream stream) {
  if (cols == 0) return;
  const auto kernel = mode == Grad::accumulate ? partial_sums_kernel<true> : partial_sums_kernel<false>;
  launch(name, kernel, dim3(blocks_for(cols, kPartialColumns, 1 << 30)), dim3(kPartialColumns * kPartialGroups), 0,
         stream, partial, blocks, cols, out);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
