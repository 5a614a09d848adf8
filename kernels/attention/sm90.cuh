// Shared by the attention kernels for compute capability 9.0. They are compiled one file per head size
// (sm90_head_48.cu, ...), for that capability only.
#pragma once

#include "kernels/attention/tiles.cuh"
#include "kernels/cuda/wgmma.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

// Registers per thread, of the 64 Ki of a block: of the warpgroup that copies, and of those that compute.
inline constexpr int kCopyRegisters = 24;
template <int kConsumers>
inline constexpr int kComputeRegisters = kConsumers == 2 ? 240 : 160;

// One of q, k, v and dO, in tiles of `rows` tokens and 64 channels of a head; missing channels are zero.
inline TensorMap tiles_of(const void* tensor, std::int64_t stride, std::int64_t tokens, const AttentionShape& s,
                          int rows) {
  constexpr std::uint64_t kBytes = 2;
  const auto size = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  return tensor_map_of({.base = tensor,
                        .size = {size(s.head_size), size(s.heads), size(tokens), size(s.batch)},
                        .stride = {size(s.head_size) * kBytes, size(stride) * kBytes, size(tokens * stride) * kBytes},
                        .box = {64, 1, static_cast<std::uint32_t>(rows), 1}});
}

// With a shuffle, so that the compiler knows that the number is the same in a warp: values that depend on it,
// especially descriptors, then use uniform registers.
__device__ __forceinline__ int warpgroup_id() {
  return __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpgroupSize, 0);
}

// ---- A ring of tiles ------------------------------------------------------------------------------------------------

// A tile of tokens is stored in parts of 64 channels, one after the other; a token's row of a part has 128 bytes.
template <int kHead>
inline constexpr int kParts = (kHead + 63) / 64;

// Barriers of a block: the owned tiles are loaded; the tiles of a slot are loaded; all consumer warps are done with a
// slot.
template <int kSlots, int kConsumers>
struct RingBarriers {
  Mbarrier owned;
  Mbarrier full[kSlots], empty[kSlots];

  // Called by one thread, before the block synchronises.
  __device__ __forceinline__ void make() {
    constexpr int kReaders = kConsumers * kWarpgroupSize / kWarpSize;
    owned.init(1);
    for (int i = 0; i < kSlots; ++i) {
      full[i].init(1);
      empty[i].init(kReaders);
    }
    mbarrier_init_fence();
  }
};

// A position in the ring. Slots are filled and read in order.
template <int kSlots>
struct RingPlace {
  int slot = 0, parity = 0;

  __device__ __forceinline__ void advance() {
    if (++slot < kSlots) return;
    slot = 0;
    parity ^= 1;
  }
  // Waits until all warps are done with the slot; returns it.
  template <class Barriers>
  __device__ __forceinline__ int wait_for_room(Barriers& barriers) const {
    barriers.empty[slot].wait(parity ^ 1);
    return slot;
  }
  // Waits until the slot is full; returns it, and moves to the next position.
  template <class Barriers>
  __device__ __forceinline__ int take(Barriers& barriers) {
    const int taken = slot;
    barriers.full[taken].wait(parity);
    advance();
    return taken;
  }
};

// A warp is done with a slot.
template <class Barriers>
__device__ __forceinline__ void release(Barriers& barriers, int slot) {
  if (lane_id() == 0) barriers.empty[slot].arrive();
}

// A kernel of roles. One thread of the first warpgroup calls copy(). Each other warpgroup calls compute(number, row):
// its number among those, and the first row of this warp among the block's rows, 64 per warpgroup.
template <class Block, class Copy, class Compute>
__device__ __forceinline__ void divide_work(const Block& block, const Copy& copy, const Compute& compute) {
  if (threadIdx.x == 0) block.barriers().make();
  __syncthreads();
  const int warpgroup = warpgroup_id();
  if (warpgroup == 0) {
    fewer_registers<kCopyRegisters>();
    if (warp_id() == 0 && elect_one()) copy();
    return;
  }
  more_registers<kComputeRegisters<Block::kConsumers>>();
  compute(warpgroup - 1, (warpgroup - 1) * 64 + warp_id() % 4 * kTileRows);
}

// Starts the copy of this head's tokens from `token` on. Called by one thread.
template <int kHead>
__device__ __forceinline__ void copy_tile(unsigned char* tile, int part_bytes, const TensorMap& map, Mbarrier& landed,
                                          int token) {
  for (int part = 0; part < kParts<kHead>; ++part)
    tma_load(tile + part * part_bytes, map, landed, 64 * part, static_cast<int>(blockIdx.y), token,
             static_cast<int>(blockIdx.z));
}

// ---- Products -------------------------------------------------------------------------------------------------------

// For a warpgroup, between wgmma_fence() and wgmma_commit(): sum = A·Bᵀ, or sum += A·Bᵀ, of 64 rows of one tile and all
// rows of another.
template <class T, int kHead, bool kAdds, int kTiles>
__device__ __forceinline__ void multiply_tiles(float (&sum)[kTiles][4], const unsigned char* a_tile, int a_part,
                                               const unsigned char* b_tile, int b_part) {
  const std::uint64_t a = tile_descriptor(a_tile, a_part), b = tile_descriptor(b_tile, b_part);
#pragma unroll
  for (int step = 0; step < kHead / 16; ++step) {
    const int column = step % 4 * 32;  // in bytes
    const std::uint64_t a_step = advanced(a, step / 4 * a_part + column);
    const std::uint64_t b_step = advanced(b, step / 4 * b_part + column);
    if (step == 0)
      wgmma<T, kAdds, false>(sum, a_step, b_step);
    else
      wgmma<T, true, false>(sum, a_step, b_step);
  }
}

// The same for sum += weights·B: weights are in registers; the tile has as many rows as they have columns.
template <class T, int kTiles, int kSteps>
__device__ __forceinline__ void add_weighted_tile(float (&sum)[kTiles][4], const std::uint32_t (&weights)[kSteps][4],
                                                  const unsigned char* b_tile, int b_part) {
  const std::uint64_t b = tile_descriptor(b_tile, b_part);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) wgmma<T, true, true>(sum, weights[step], advanced(b, step * 16 * 128));
}

// Scores, rounded, as the first operand of the product above.
template <class T, int kTiles, int kSteps>
__device__ __forceinline__ void round_weights(std::uint32_t (&weights)[kSteps][4], const float (&scores)[kTiles][4]) {
  static_assert(kTiles == 2 * kSteps);
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&w)[4] = scores[2 * step + i / 2];
      weights[step][i] = pack_two<T>(w[2 * (i % 2)], w[2 * (i % 2) + 1]);
    }
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
