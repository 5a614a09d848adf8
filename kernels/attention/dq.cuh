// Attention backward, the queries' half: a block owns queries and streams the keys and values.
#pragma once

#include <algorithm>

#include "kernels/attention/backward.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

// Like ForwardTiles; a turn takes the keys of a stage kColumns at a time: fewer if there is a dropout generator.
template <class T, int kHead, bool kDropout, bool kLimited = false>
struct DqTiles {
  static constexpr int kLargest = sizeof(T) == 2 ? 96 : 64;  // the largest head that leaves registers for two
  static constexpr int kRowTiles = kOnTensorCores<T> && kHead <= kLargest ? 2 : 1, kWarpRows = kTileRows * kRowTiles;
  static constexpr int kOwned = kWarps * kWarpRows, kRows = rows_of_stage<T, kHead>(2 * kOwned);
  static constexpr int kFew = kDropout && sizeof(T) == 2 && kHead > (kLimited ? 64 : 80) ? 16 : 32;
  static constexpr int kColumns = std::min(kRows, kFew);
  static constexpr int kAllRows = 2 * kOwned + 4 * kRows;  // queries, dO; two stages of keys and of values
  static constexpr std::size_t kBytes = kAllRows * kPitch<T, kHead> * sizeof(T);
};

template <class T, int kHead, bool kDropout, bool kLimited = false>
__global__ void __launch_bounds__(kThreads, 2) dq_kernel(const AttentionBwdArgs a, float score_scale) {
  using Tiles = DqTiles<T, kHead, kDropout, kLimited>;
  constexpr int kRows = Tiles::kRows, kRowTiles = Tiles::kRowTiles, kTiles = Tiles::kColumns / 8;
  constexpr int kTile = kRows * kPitch<T, kHead>, kOwned = Tiles::kOwned * kPitch<T, kHead>;
  ISOBAR_DYNAMIC_SHARED(T, q_tile);
  T *do_tile = q_tile + kOwned, *streamed = do_tile + kOwned;  // stage 0: keys, values; stage 1: keys, values
  const int head_size = static_cast<int>(a.shape.head_size), kv_tokens = static_cast<int>(a.shape.kv_tokens);
  const int block_row = tile_of_queries(a.causal) * Tiles::kOwned, warp_row = warp_id() * Tiles::kWarpRows;
  const std::conditional_t<kLimited, LimitedKeys<kRows>, SeenKeys> seen(a, block_row, Tiles::kOwned);

  using OwnedCopy = TileCopy<T, kHead, Tiles::kOwned>;
  using StreamedCopy = TileCopy<T, kHead, kRows>;
  OwnedCopy q_copy(tokens_of<const T>(a.q, a.q_stride, a.shape.q_tokens, head_size), block_row, head_size);
  OwnedCopy do_copy(tokens_of<const T>(a.d_o, a.do_stride, a.shape.q_tokens, head_size), block_row, head_size);
  StreamedCopy k_copy(tokens_of<const T>(a.k, a.k_stride, kv_tokens, head_size), begin(seen), head_size);
  StreamedCopy v_copy(tokens_of<const T>(a.v, a.v_stride, kv_tokens, head_size), begin(seen), head_size);
  clear_padding<T, kHead>(q_tile, Tiles::kAllRows, head_size);
  q_copy.start(q_tile);
  do_copy.start(do_tile);
  k_copy.start(streamed);
  v_copy.start(streamed + kTile);
  cp_async_commit();

  const QueryTerms terms(a);
  float minus_lse[kRowTiles][2], minus_delta[kRowTiles][4], dq[kRowTiles][kHead / 8][4];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = block_row + warp_row + m * kTileRows + row_of(r);
      if (r % 2 == 0) minus_lse[m][r / 2] = terms.minus_lse[row];
      minus_delta[m][r] = terms.minus_delta[row];
    }
  clear(dq);
  int stage = 0;  // offset of the current keys
  if constexpr (kIsTf32<T>) {
    cp_async_wait<0>();
    q_copy.round(q_tile);
    do_copy.round(do_tile);
  }

  const auto multiply = [&](int key, const T* k_rows, const T* v_rows, auto is_masked) {
    float scores[kRowTiles][kTiles][4], dp[kRowTiles][kTiles][4];
    multiply_rows<kHead>(scores, q_tile + warp_row * kPitch<T, kHead>, k_rows, Zero());
    if constexpr (is_masked) seen.mask(scores, block_row + warp_row, key);
    const auto start = [&](int m, int) -> const float(&)[4] { return minus_delta[m]; };
    if constexpr (kDropout)
      multiply_rows<kHead>(dp, do_tile + warp_row * kPitch<T, kHead>, v_rows, Zero());
    else
      multiply_rows<kHead>(dp, do_tile + warp_row * kPitch<T, kHead>, v_rows, start);
    const KeepMask mask(a.dropout, a.window);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const int row = block_row + warp_row + m * kTileRows;
      const std::uint32_t kept = kDropout ? mask.of_queries<kTiles>(row, key) : 0;
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          differentiate<T, kDropout>(scores[m][n][r], dp[m][n][r], score_scale, minus_lse[m][r / 2], minus_delta[m][r],
                                     is_kept(kept, n, r), mask.scale);
    }
    add_weighted_rows<kHead>(dq, dp, k_rows);
  };
  // The next kRows keys, from `key` on. Only in the last turns keys may be hidden. The other turns need no check, and
  // start the next copy even if nothing follows.
  const auto turn = [&](int key, auto is_masked) {
    cp_async_wait<0>();
    k_copy.round(streamed + stage);
    v_copy.round(streamed + stage + kTile);
    __syncthreads();  // this stage is loaded, and no thread reads the other one any more
    const T* k_tile = streamed + stage;
    stage ^= 2 * kTile;
    if (!is_masked() || key + kRows < seen.end) {
      k_copy.start(streamed + stage);
      v_copy.start(streamed + stage + kTile);
      cp_async_commit();
    }
#pragma unroll 1
    for (int row = 0; row < kRows; row += Tiles::kColumns) {
      const T* k_rows = k_tile + row * kPitch<T, kHead>;
      multiply(key + row, k_rows, k_rows + kTile, is_masked);
    }
  };
  take_turns<kRows>(seen, turn);

  const Destination to{a.dq, a.dq_stride, a.shape.q_tokens, a.grad_dtype, a.dq_mode};
  const auto scale = static_cast<float>(a.scale);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
    store_rows<T, kHead>(to, block_row + warp_row + m * kTileRows, head_size, dq[m], {scale, scale});
}

template <class T, int kHead>
void launch_limited_dq(const AttentionBwdArgs& a, Stream stream) {
  using Tiles = DqTiles<T, kHead, true, true>;
  launch("attention_dq: intervals", dq_kernel<T, kHead, true, true>, grid_of(a.shape, a.shape.q_tokens, Tiles::kOwned),
         dim3(kThreads), Tiles::kBytes, stream, a, score_scale_of(a.scale));
}

template <class T, int kHead>
void launch_dq(const AttentionBwdArgs& a, Stream stream) {
  if (a.keys.are_limited()) return launch_limited_dq<T, kHead>(a, stream);
  // In TF32 the largest heads need too many registers if no dropout generator is between two products.
  constexpr bool kOneKernel = !kOnTensorCores<T> || (kIsTf32<T> && kHead > 64);
  visit_dropout<T, kOneKernel>(a.dropout, [&](auto dropout) {
    using Tiles = DqTiles<T, kHead, dropout()>;
    launch("attention_dq", dq_kernel<T, kHead, dropout()>, grid_of(a.shape, a.shape.q_tokens, Tiles::kOwned),
           dim3(kThreads), Tiles::kBytes, stream, a, score_scale_of(a.scale));
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
