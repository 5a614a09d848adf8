// What the attention kernels for compute capability 9.0 share. They are compiled a file a head size (sm90_head_48.cu,
// ...), for that capability alone.
#pragma once

#include "kernels/attention/tiles.cuh"
#include "kernels/cuda/wgmma.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

// Registers a thread, of the 64 Ki of a block: of the warpgroup that copies, and of those that compute.
inline constexpr int kCopyRegisters = 24;
template <int kConsumers>
inline constexpr int kComputeRegisters = kConsumers == 2 ? 240 : 160;

struct QkvMaps {
  TensorMap q, k, v;
};

// One of q, k and v, by tiles of `rows` tokens and 64 channels of a head; what a head lacks to them is zero.
inline TensorMap tiles_of(const void* tensor, std::int64_t stride, std::int64_t tokens, const AttentionShape& s,
                          int rows) {
  constexpr std::uint64_t kBytes = 2;
  const auto size = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  return tensor_map_of({.base = tensor,
                        .size = {size(s.head_size), size(s.heads), size(tokens), size(s.batch)},
                        .stride = {size(s.head_size) * kBytes, size(stride) * kBytes, size(tokens * stride) * kBytes},
                        .box = {64, 1, static_cast<std::uint32_t>(rows), 1}});
}

__device__ __forceinline__ int warpgroup_id() {
  return static_cast<int>(threadIdx.x) / kWarpgroupSize;
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
