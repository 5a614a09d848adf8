// Attention backward for compute capability 9.0, the queries' half: a block owns queries and streams the keys and
// values.
#pragma once

#include "kernels/attention/sm90_backward.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

// Three warpgroups compute if 160 registers a thread are enough.
template <int kHead>
using Sm90DqBlock = BackwardBlock<kHead, kHead <= 64 ? 3 : 2, 64, false>;

// A warpgroup that computes dQ of 64 queries.
template <class T, int kHead, bool kDropout>
struct DqConsumer {
  using Block = Sm90DqBlock<kHead>;
  using Products = BackwardProducts<T, kHead, Block>;
  static constexpr int kTiles = Products::kTiles;

  const AttentionBwdArgs& a;
  Products products;
  SeenKeys seen;  // for the queries of the block
  int row0;       // the first query of this warp
  float score_scale;
  RingPlace<Block::kSlots> place = {};
  float minus_lse[2] = {-INFINITY, -INFINITY}, minus_delta[2] = {};  // of this lane's two rows
  float scores[1][kTiles][4] = {}, dp[1][kTiles][4] = {};
  float dq[kHead / 8][4] = {};

  // The workspace may end before the block's queries: the missing ones keep (-inf, 0).
  __device__ __forceinline__ void load_terms() {
    const QueryTerms terms(a);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + row_of(2 * half);
      if (row >= a.shape.q_tokens) continue;
      minus_lse[half] = terms.minus_lse[row];
      minus_delta[half] = terms.minus_delta[row];
    }
  }

  // From S and dP to dS.
  template <bool kMasked>
  __device__ __forceinline__ void differentiate_scores(int key) {
    if constexpr (kMasked) seen.mask(scores, row0, key);
    const KeepMask mask(a.dropout, a.window);
    const std::uint32_t kept = kDropout ? mask.of_queries<kTiles>(row0, key) : 0;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        differentiate<T, kDropout>(scores[0][n][r], dp[0][n][r], score_scale, minus_lse[r / 2], minus_delta[r / 2],
                                   is_kept(kept, n, r), mask.scale);
  }

  // The next keys, from `key` on.
  template <bool kMasked>
  __device__ __forceinline__ void turn(int key) {
    auto& barriers = products.block.barriers();
    const int slot = place.take(barriers);
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r) dp[0][n][r] = minus_delta[r / 2];
    products.template start_scores<!kDropout>(scores[0], dp[0], slot);
    wgmma_wait<0>(scores[0], dp[0]);
    differentiate_scores<kMasked>(key);
    std::uint32_t ds[Products::kSteps][4];
    round_weights<T>(ds, dp[0]);
    wgmma_fence();
    products.add_weighted(dq, ds, slot, kOfScores);
    wgmma_commit();
    wgmma_wait<0>(dq, ds);
    release(barriers, slot);
  }

  __device__ __forceinline__ void run() {
    load_terms();
    products.block.barriers().owned.wait(0);
    int key = 0;
    for (; key + Block::kStreamed <= seen.all; key += Block::kStreamed) turn<false>(key);
    for (; key < seen.end; key += Block::kStreamed) turn<true>(key);
    const Destination to{a.dq, a.dq_stride, a.shape.q_tokens, a.grad_dtype, a.dq_mode};
    const auto scale = static_cast<float>(a.scale);
    store_rows<T, kHead>(to, row0, static_cast<int>(a.shape.head_size), dq, {scale, scale});
  }
};

template <class T, int kHead, bool kDropout>
__global__ void __launch_bounds__(Sm90DqBlock<kHead>::kThreads, 1)
    sm90_dq_kernel(const AttentionBwdArgs a, const __grid_constant__ BackwardMaps maps, float score_scale) {
  using Block = Sm90DqBlock<kHead>;
  ISOBAR_SWIZZLED_SHARED(shared);
  const Block block{shared};
  const int block_row = tile_of_queries(a.causal) * Block::kOwned;
  const SeenKeys seen(a, block_row, Block::kOwned);
  divide_work<Block>(
      block, [&] { copy_pairs<kHead>(block, maps, QueryTerms(a), block_row, 0, seen.end); },
      [&](int number, int row) {
        DqConsumer<T, kHead, kDropout>{a, {block, number}, seen, block_row + row, score_scale}.run();
      });
}

template <class T, int kHead>
void launch_sm90_dq(const AttentionBwdArgs& a, Stream stream) {
  using Block = Sm90DqBlock<kHead>;
  const BackwardMaps maps{tiles_of_queries(a, Block::kOwned), tiles_of_keys(a, Block::kStreamed)};
  visit_dropout<T>(a.dropout, [&](auto dropout) {
    launch("attention_dq", sm90_dq_kernel<T, kHead, dropout()>, grid_of(a.shape, a.shape.q_tokens, Block::kOwned),
           dim3(Block::kThreads), Block::kBytes, stream, a, maps, score_scale_of(a.scale));
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
