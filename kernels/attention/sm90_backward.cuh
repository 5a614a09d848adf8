// Shared by the two halves of the backward pass for compute capability 9.0. Roles are those of the forward pass
// (sm90_forward.cuh). Both halves multiply tiles in pairs: S is the product of rows of Q and K, dP that of rows of dO
// and V. A block owns one pair (Q and dO, or K and V), 64 tokens a warpgroup, and streams the other through a ring.
//
// A warpgroup waits for its own products at once: while it computes exponentials, the products of other warpgroups run.
#pragma once

#include "kernels/attention/backward.cuh"
#include "kernels/attention/sm90.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

// The tiles of a pair: the one for S (Q or K), and the one for dP (dO or V).
enum Operand { kOfScores, kOfDp };

struct PairMaps {
  TensorMap of[2];  // by Operand
};
struct BackwardMaps {
  PairMaps owned, streamed;
};

inline PairMaps tiles_of_queries(const AttentionBwdArgs& a, int rows) {
  const std::int64_t count = a.shape.q_tokens;
  return {{tiles_of(a.q, a.q_stride, count, a.shape, rows), tiles_of(a.d_o, a.do_stride, count, a.shape, rows)}};
}
inline PairMaps tiles_of_keys(const AttentionBwdArgs& a, int rows) {
  const std::int64_t count = a.shape.kv_tokens;
  return {{tiles_of(a.k, a.k_stride, count, a.shape, rows), tiles_of(a.v, a.v_stride, count, a.shape, rows)}};
}

// The shared memory of a block: the owned pair; one pair per slot; with kHasTerms the terms of a slot's queries, first
// -lse, then -delta; barriers.
template <int kHead, int kConsumers_, int kStreamed_, bool kHasTerms>
struct BackwardBlock {
  static constexpr int kConsumers = kConsumers_, kOwned = 64 * kConsumers, kStreamed = kStreamed_, kSlots = 4;
  static constexpr int kThreads = kWarpgroupSize * (1 + kConsumers);
  static constexpr int kOwnedPart = kOwned * 128, kStreamedPart = kStreamed * 128;
  static constexpr int kOwnedBytes = kParts<kHead> * kOwnedPart, kStreamedBytes = kParts<kHead> * kStreamedPart;
  static constexpr int kTermBytes = kHasTerms ? 2 * kStreamed * static_cast<int>(sizeof(float)) : 0;
  static constexpr int kSlotBytes = 2 * kStreamedBytes + kTermBytes;  // bytes copied to a slot
  using Barriers = RingBarriers<kSlots, kConsumers>;
  static constexpr int kBytes = 2 * kOwnedBytes + kSlots * kSlotBytes + static_cast<int>(sizeof(Barriers));

  unsigned char* shared;

  __device__ __forceinline__ unsigned char* owned(Operand which) const { return shared + which * kOwnedBytes; }
  __device__ __forceinline__ unsigned char* streamed(int slot, Operand which) const {
    return shared + 2 * kOwnedBytes + (2 * slot + which) * kStreamedBytes;
  }
  __device__ __forceinline__ float* terms(int slot) const {
    return reinterpret_cast<float*>(streamed(kSlots, kOfScores) + slot * kTermBytes);
  }
  __device__ __forceinline__ Barriers& barriers() const { return *reinterpret_cast<Barriers*>(terms(kSlots)); }
};

// The thread that copies: the owned pair from token `own` on, then pairs from `begin` on, up to `end`.
template <int kHead, class Block>
__device__ __forceinline__ void copy_pairs(const Block& block, const BackwardMaps& maps, const QueryTerms& terms,
                                           int own, int begin, int end) {
  auto& barriers = block.barriers();
  barriers.owned.arrive_and_expect(2 * Block::kOwnedBytes);
  for (const Operand which : {kOfScores, kOfDp})
    copy_tile<kHead>(block.owned(which), Block::kOwnedPart, maps.owned.of[which], barriers.owned, own);
  RingPlace<Block::kSlots> place;
  for (int token = begin; token < end; token += Block::kStreamed) {
    const int slot = place.wait_for_room(barriers);
    Mbarrier& landed = barriers.full[slot];
    landed.arrive_and_expect(Block::kSlotBytes);
    for (const Operand which : {kOfScores, kOfDp})
      copy_tile<kHead>(block.streamed(slot, which), Block::kStreamedPart, maps.streamed.of[which], landed, token);
    if constexpr (Block::kTermBytes > 0) {
      bulk_load(block.terms(slot), terms.minus_lse + token, Block::kTermBytes / 2, landed);
      bulk_load(block.terms(slot) + Block::kStreamed, terms.minus_delta + token, Block::kTermBytes / 2, landed);
    }
    place.advance();
  }
}

// A warpgroup's products: its 64 owned tokens by those of a slot.
template <class T, int kHead, class Block>
struct BackwardProducts {
  static constexpr int kTiles = Block::kStreamed / 8, kSteps = Block::kStreamed / 16;

  Block block;
  int number;  // of the warpgroup, among those that compute

  // Starts scores = (owned)·(streamed)ᵀ for S, and the same for dP: added to `dp`, or written to it. The values of `dp`
  // are set before the fence: the compiler would move them after it, and then separate the products by a fence of its
  // own.
  template <bool kAddsDp>
  __device__ __forceinline__ void start_scores(float (&scores)[kTiles][4], float (&dp)[kTiles][4], int slot) const {
    if constexpr (kAddsDp) settle(dp);
    wgmma_fence();
    multiply<false>(scores, slot, kOfScores);
    multiply<kAddsDp>(dp, slot, kOfDp);
    wgmma_commit();
  }
  template <bool kAdds>
  __device__ __forceinline__ void multiply(float (&sum)[kTiles][4], int slot, Operand which) const {
    multiply_tiles<T, kHead, kAdds>(sum, block.owned(which) + number * 64 * 128, Block::kOwnedPart,
                                    block.streamed(slot, which), Block::kStreamedPart);
  }
  // sum += weights·(streamed), between wgmma_fence() and wgmma_commit()
  __device__ __forceinline__ void add_weighted(float (&sum)[kHead / 8][4], const std::uint32_t (&weights)[kSteps][4],
                                               int slot, Operand which) const {
    add_weighted_tile<T>(sum, weights, block.streamed(slot, which), Block::kStreamedPart);
  }
};

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
