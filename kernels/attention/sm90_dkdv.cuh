// Attention backward for compute capability 9.0, the keys' half: a block owns keys and values and streams the queries.
// Scores are computed transposed, keys by queries, as in dkdv.cuh.
#pragma once

#include "kernels/attention/sm90_backward.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

// Three warpgroups compute if 160 registers a thread are enough. Dropout needs some, too.
template <int kHead, bool kDropout>
inline constexpr int kDkdvConsumers = kHead <= 64 && !kDropout ? 3 : 2;
template <int kHead, bool kDropout>
inline constexpr int kDkdvStreamed = kHead > 64 && kDropout ? 32 : 64;
template <int kHead, bool kDropout>
using Sm90DkdvBlock = BackwardBlock<kHead, kDkdvConsumers<kHead, kDropout>, kDkdvStreamed<kHead, kDropout>, true>;

// A warpgroup that computes dK and dV of 64 keys.
template <class T, int kHead, bool kDropout>
struct DkdvConsumer {
  using Block = Sm90DkdvBlock<kHead, kDropout>;
  using Products = BackwardProducts<T, kHead, Block>;
  static constexpr int kTiles = Products::kTiles, kSteps = Products::kSteps;

  const AttentionBwdArgs& a;
  Products products;
  SeeingQueries<Block::kStreamed> seeing;  // for the keys of the block
  int row0;                                // the first key of this warp
  float score_scale;
  RingPlace<Block::kSlots> place = {};
  float scores[1][kTiles][4] = {}, dp[1][kTiles][4] = {};
  float dk[kHead / 8][4] = {}, dv[kHead / 8][4] = {};

  // Loads one of the two terms of the queries, for this lane's columns.
  static __device__ __forceinline__ void load_terms(float (&of_columns)[kTiles][4], const float* terms) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const TwoFloats two = load_two(terms + column_of(n, 0));
      of_columns[n][0] = of_columns[n][2] = two.first;
      of_columns[n][1] = of_columns[n][3] = two.second;
    }
  }

  // Called before the scores are computed: at that point there are registers for the generator.
  __device__ __forceinline__ std::uint32_t kept_of(int query) const {
    if constexpr (!kDropout) return 0;
    return KeepMask(a.dropout, a.window).template of_keys<kTiles>(row0, query);
  }

  // From S and dP to dropout(P) and dS. Loading the terms before the products would need too many registers.
  template <bool kMasked>
  __device__ __forceinline__ void differentiate_scores(int query, const float* terms, std::uint32_t kept) {
    float minus_lse[kTiles][4], minus_delta[kTiles][4];
    load_terms(minus_lse, terms);
    load_terms(minus_delta, terms + Block::kStreamed);
    if constexpr (kMasked) seeing.mask(scores, row0, query);
    const float keep_scale = KeepMask(a.dropout, a.window).scale;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        differentiate<T, kDropout>(scores[0][n][r], dp[0][n][r], score_scale, minus_lse[n][r], minus_delta[n][r],
                                   is_kept(kept, n, r), keep_scale);
  }

  // The next queries, from `query` on.
  template <bool kMasked>
  __device__ __forceinline__ void turn(int query) {
    auto& barriers = products.block.barriers();
    const std::uint32_t kept = kept_of(query);
    const int slot = place.take(barriers);
    const float* terms = products.block.terms(slot);
    if constexpr (!kDropout) load_terms(dp[0], terms + Block::kStreamed);
    products.template start_scores<!kDropout>(scores[0], dp[0], slot);
    wgmma_wait<0>(scores[0], dp[0]);
    differentiate_scores<kMasked>(query, terms, kept);
    std::uint32_t weights[kSteps][4], ds[kSteps][4];
    round_weights<T>(weights, scores[0]);
    round_weights<T>(ds, dp[0]);
    wgmma_fence();
    products.add_weighted(dv, weights, slot, kOfDp);
    products.add_weighted(dk, ds, slot, kOfScores);
    wgmma_commit();
    wgmma_wait<0>(dv, dk, weights, ds);
    fence_async_proxy();  // the terms are read before TMA writes the next ones
    __syncwarp();
    release(barriers, slot);
  }

  __device__ __forceinline__ void run() {
    const int queries = static_cast<int>(a.shape.q_tokens), head_size = static_cast<int>(a.shape.head_size);
    products.block.barriers().owned.wait(0);
    int query = seeing.begin;
    for (; query < seeing.all; query += Block::kStreamed) turn<true>(query);
    for (; query < queries; query += Block::kStreamed) turn<false>(query);
    const Destination to_dk{a.dk, a.dk_stride, a.shape.kv_tokens, a.grad_dtype, a.dkv_mode};
    const Destination to_dv{a.dv, a.dv_stride, a.shape.kv_tokens, a.grad_dtype, a.dkv_mode};
    const auto scale = static_cast<float>(a.scale);
    store_rows<T, kHead>(to_dk, row0, head_size, dk, {scale, scale});
    store_rows<T, kHead>(to_dv, row0, head_size, dv, {1, 1});
  }
};

template <class T, int kHead, bool kDropout>
__global__ void __launch_bounds__(Sm90DkdvBlock<kHead, kDropout>::kThreads, 1)
    sm90_dkdv_kernel(const AttentionBwdArgs a, const __grid_constant__ BackwardMaps maps, float score_scale) {
  using Block = Sm90DkdvBlock<kHead, kDropout>;
  ISOBAR_SWIZZLED_SHARED(shared);
  const Block block{shared};
  const int block_row = static_cast<int>(blockIdx.x) * Block::kOwned;
  const SeeingQueries<Block::kStreamed> seeing(a, block_row, Block::kOwned);
  divide_work<Block>(
      block,
      [&] {
        const int queries = static_cast<int>(a.shape.q_tokens);
        copy_pairs<kHead>(block, maps, QueryTerms(a), block_row, seeing.begin, queries);
      },
      [&](int number, int row) {
        DkdvConsumer<T, kHead, kDropout>{a, {block, number}, seeing, block_row + row, score_scale}.run();
      });
}

template <class T, int kHead>
void launch_sm90_dkdv(const AttentionBwdArgs& a, Stream stream) {
  visit_dropout<T>(a.dropout, [&](auto dropout) {
    using Block = Sm90DkdvBlock<kHead, dropout()>;
    const BackwardMaps maps{tiles_of_keys(a, Block::kOwned), tiles_of_queries(a, Block::kStreamed)};
    launch("attention_dkdv", sm90_dkdv_kernel<T, kHead, dropout()>, grid_of(a.shape, a.shape.kv_tokens, Block::kOwned),
           dim3(Block::kThreads), Block::kBytes, stream, a, maps, score_scale_of(a.scale));
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
