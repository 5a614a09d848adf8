// Attention forward for compute capability 9.0, with the division of work of FlashAttention-3 (Shah et al. 2024).
//
// In one warpgroup a single thread copies with TMA: the block's queries, then tiles of keys and values through a ring
// in shared memory. Each other warpgroup owns 64 queries. Products are wgmma: the scores of the next keys are
// multiplied before the softmax of the current ones, and the warpgroups take turns, so that the exponentials of one run
// at the same time as the products of another. Weights stay in registers.
#pragma once

#include "kernels/attention/sm90.cuh"
#include "kernels/attention/softmax.cuh"
#include "kernels/cuda/wgmma.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

struct QkvMaps {
  TensorMap q, k, v;
};

// The shared memory of a block. Three warpgroups compute if 160 registers a thread are enough. Large heads with a
// dropout generator leave fewer registers for scores.
template <int kHead, bool kDropout>
struct ForwardBlock {
  static constexpr int kConsumers = kHead <= 64 && !kDropout ? 3 : 2, kQueries = 64 * kConsumers;
  static constexpr int kKeys = kHead > 64 && kDropout ? 64 : 128;
  static constexpr int kThreads = kWarpgroupSize * (1 + kConsumers);
  static constexpr int kQueryPart = kQueries * 128, kTilePart = kKeys * 128;
  static constexpr int kQueryBytes = kParts<kHead> * kQueryPart, kTileBytes = kParts<kHead> * kTilePart;
  static constexpr int kSlots = kHead <= 64 ? 8 : 4;

  using Barriers = RingBarriers<kSlots, kConsumers>;  // after the tiles
  static constexpr int kBytes = kQueryBytes + kSlots * kTileBytes + static_cast<int>(sizeof(Barriers));

  unsigned char* shared;

  __device__ __forceinline__ unsigned char* slot(int i) const { return shared + kQueryBytes + i * kTileBytes; }
  __device__ __forceinline__ Barriers& barriers() const { return *reinterpret_cast<Barriers*>(slot(kSlots)); }
};

// The thread that copies. The tiles are in the order of use: the keys of a turn, then the values of the previous turn.
template <int kHead, class Block>
struct ForwardProducer {
  Block block;
  RingPlace<Block::kSlots> place = {};

  __device__ __forceinline__ void load(const TensorMap& map, int token) {
    auto& barriers = block.barriers();
    const int slot = place.wait_for_room(barriers);
    barriers.full[slot].arrive_and_expect(Block::kTileBytes);
    copy_tile<kHead>(block.slot(slot), Block::kTilePart, map, barriers.full[slot], token);
    place.advance();
  }

  // `end`: number of leading keys that the block's queries see.
  __device__ __forceinline__ void run(const QkvMaps& maps, int block_row, int end) {
    Mbarrier& queries = block.barriers().owned;
    queries.arrive_and_expect(Block::kQueryBytes);
    copy_tile<kHead>(block.shared, Block::kQueryPart, maps.q, queries, block_row);
    load(maps.k, 0);
    for (int key = Block::kKeys; key < end; key += Block::kKeys) {
      load(maps.k, key);
      load(maps.v, key - Block::kKeys);
    }
    load(maps.v, (end - 1) / Block::kKeys * Block::kKeys);
  }
};

// A warpgroup that computes the output of 64 queries.
template <class T, int kHead, bool kDropout>
struct ForwardConsumer {
  using Block = ForwardBlock<kHead, kDropout>;
  static constexpr int kTiles = Block::kKeys / 8, kSteps = Block::kKeys / 16;

  const AttentionFwdArgs& a;
  Block block;
  SeenKeys seen;     // for the queries of the block
  int number, row0;  // number: of the consumer; row0: the first query of its warp
  float score_scale;
  RingPlace<Block::kSlots> place = {};
  int tile = 0;  // the slot of the next turn's first tile, which is loaded
  RunningSoftmax<T> softmax = {};
  float scores[1][kTiles][4] = {};
  std::uint32_t weights[kSteps][4] = {};  // of the previous turn, as operands
  float out[kHead / 8][4] = {};

  __device__ __forceinline__ int wait_for_tile() { return place.take(block.barriers()); }
  __device__ __forceinline__ void release(int slot) { attention::release(block.barriers(), slot); }

  // Warpgroups take turns to issue their products.
  __device__ __forceinline__ void wait_for_turn() { bar_sync(1 + number, 2 * kWarpgroupSize); }
  __device__ __forceinline__ void pass_turn() { bar_arrive(1 + (number + 1) % Block::kConsumers, 2 * kWarpgroupSize); }

  // scores = Q·Kᵀ
  __device__ __forceinline__ void start_scores(int slot) {
    wgmma_fence();
    multiply_tiles<T, kHead, false>(scores[0], block.shared + number * 64 * 128, Block::kQueryPart, block.slot(slot),
                                    Block::kTilePart);
    wgmma_commit();
  }

  // out += weights·V
  __device__ __forceinline__ void start_output(int slot) {
    wgmma_fence();
    add_weighted_tile<T>(out, weights, block.slot(slot), Block::kTilePart);
    wgmma_commit();
  }

  // Turns scores of keys from `key` on into exponentials, dropout included; returns the factor by which each row
  // shrinks.
  template <bool kMasked>
  __device__ __forceinline__ void exponentiate(int key, float (&shrink)[2]) {
    // The same as SeenKeys::mask, which would make the loop longer: here registers are not scarce.
    if constexpr (kMasked) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          if (!seen.sees(row0 + row_of(r), key + column_of(n, r))) scores[0][n][r] = -INFINITY;
    }
    softmax.update(scores[0], score_scale, shrink);
    if constexpr (kDropout) {
      const KeepMask mask(a.dropout, a.window);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t kept = mask.template of_queries<kTiles / 2>(row0, key + half * Block::kKeys / 2);
#pragma unroll
        for (int n = 0; n < kTiles / 2; ++n)
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            float& weight = scores[0][half * kTiles / 2 + n][r];
            weight = is_kept(kept, n, r) ? weight : 0;
          }
      }
    }
  }

  // Scores of the first keys; the rest of this turn is done in the next one.
  __device__ __forceinline__ void first_turn() {
    block.barriers().owned.wait(0);
    const int keys = wait_for_tile();
    wait_for_turn();
    start_scores(keys);
    pass_turn();
    wgmma_wait<0>(scores[0]);
    release(keys);
    float shrink[2];
    exponentiate<true>(0, shrink);
    round_weights<T>(weights, scores[0]);
    tile = wait_for_tile();
  }

  // The compiler moves a wait for products up as far as it can. It stays after the exponentials because the loop that
  // waits for the next tile is in between.
  template <bool kMasked>
  __device__ __forceinline__ void turn(int key) {
    const int keys = tile;
    wait_for_turn();
    start_scores(keys);
    const int values = wait_for_tile();
    start_output(values);
    pass_turn();
    wgmma_wait<1>(scores[0]);
    release(keys);
    float shrink[2];
    exponentiate<kMasked>(key, shrink);
    settle(scores[0]);
    tile = wait_for_tile();
    wgmma_wait<0>(out, weights);
    release(values);
#pragma unroll
    for (int c = 0; c < kHead / 8; ++c)
#pragma unroll
      for (int r = 0; r < 4; ++r) out[c][r] *= shrink[r / 2];
    round_weights<T>(weights, scores[0]);
  }

  __device__ __forceinline__ void last_output() {
    start_output(tile);
    wgmma_wait<0>(out, weights);
  }

  __device__ __forceinline__ void store() {
    float factor[2];
    finish_rows(a, softmax, row0, kDropout ? KeepMask(a.dropout, a.window).scale : 1, factor);
    const Destination o{a.o, a.o_stride, a.shape.q_tokens, a.o_dtype, Grad::overwrite};
    store_rows<T, kHead>(o, row0, static_cast<int>(a.shape.head_size), out, factor);
  }

  __device__ __forceinline__ void run() {
    softmax.start(seen, row0);
    if (number == Block::kConsumers - 1) pass_turn();
    first_turn();
    int key = Block::kKeys;
    for (; key + Block::kKeys <= seen.all; key += Block::kKeys) turn<false>(key);
    for (; key < seen.end; key += Block::kKeys) turn<true>(key);
    last_output();
    store();
  }
};

template <class T, int kHead, bool kDropout>
__global__ void __launch_bounds__(ForwardBlock<kHead, kDropout>::kThreads, 1)
    sm90_forward_kernel(const AttentionFwdArgs a, const __grid_constant__ QkvMaps maps, float score_scale) {
  using Block = ForwardBlock<kHead, kDropout>;
  ISOBAR_SWIZZLED_SHARED(shared);
  const Block block{shared};
  const int block_row = tile_of_queries(a.causal) * Block::kQueries;
  const SeenKeys seen(a, block_row, Block::kQueries);
  divide_work<Block>(
      block, [&] { ForwardProducer<kHead, Block>{block}.run(maps, block_row, seen.end); },
      [&](int number, int row) {
        ForwardConsumer<T, kHead, kDropout>{a, block, seen, number, block_row + row, score_scale}.run();
      });
}

template <class T, int kHead>
void launch_sm90_forward(const AttentionFwdArgs& a, Stream stream) {
  visit_dropout<T>(a.dropout, [&](auto dropout) {
    using Block = ForwardBlock<kHead, dropout()>;
    const QkvMaps maps{tiles_of(a.q, a.q_stride, a.shape.q_tokens, a.shape, Block::kQueries),
                       tiles_of(a.k, a.k_stride, a.shape.kv_tokens, a.shape, Block::kKeys),
                       tiles_of(a.v, a.v_stride, a.shape.kv_tokens, a.shape, Block::kKeys)};
    launch("attention_fwd", sm90_forward_kernel<T, kHead, dropout()>,
           grid_of(a.shape, a.shape.q_tokens, Block::kQueries), dim3(Block::kThreads), Block::kBytes, stream, a, maps,
           score_scale_of(a.scale));
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
