// Sums, maxima and minima over a warp or a block, in a fixed order; every thread gets the result. The block versions
// are for one-dimensional blocks of whole warps; every thread calls them. They have their own scratch and a barrier
// after it, so that two calls in a row are safe.
#pragma once

#include <limits>

#include "kernels/cuda/platform.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int step = kWarpSize / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

// A NaN is ignored, as in max(), unless all are NaN.
template <class T>
__device__ __forceinline__ T warp_max(T value) {
#pragma unroll
  for (int step = kWarpSize / 2; step > 0; step /= 2) value = max(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

template <class T>
__device__ __forceinline__ T warp_min(T value) {
#pragma unroll
  for (int step = kWarpSize / 2; step > 0; step /= 2) value = min(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

namespace reduce_internal {

// `warp_reduce` over the warps' results; `neutral` replaces those of missing warps.
template <class T, class WarpReduce>
__device__ __forceinline__ T over_block(T value, T neutral, WarpReduce warp_reduce) {
  __shared__ T of_warp[kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  value = warp_reduce(value);
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  value = warp_reduce(lane < warps ? of_warp[lane] : neutral);
  __syncthreads();
  return value;
}

}  // namespace reduce_internal

template <class T>
__device__ __forceinline__ T block_sum(T value) {
  return reduce_internal::over_block(value, T(0), [](T x) { return warp_sum(x); });
}

template <class T>
__device__ __forceinline__ T block_max(T value) {
  return reduce_internal::over_block(value, -std::numeric_limits<T>::infinity(), [](T x) { return warp_max(x); });
}

// For integers.
template <class T>
__device__ __forceinline__ T block_min(T value) {
  static_assert(std::numeric_limits<T>::is_integer);
  return reduce_internal::over_block(value, std::numeric_limits<T>::max(), [](T x) { return warp_min(x); });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
