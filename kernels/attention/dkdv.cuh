// Attention backward, the keys' half: a block owns keys and streams the queries. Scores are computed transposed, keys
// by queries, so that a warp's dropout(P)ᵀ and dSᵀ are already in the layout for the products with dO and Q.
#pragma once

#include <algorithm>

#include "kernels/attention/backward.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

// Like DqTiles, with the queries' terms after the tiles. The generator of the dropout mask needs registers, too.
template <class T, int kHead, bool kDropout>
struct DkdvTiles {
  static constexpr int kRowTiles = kOnTensorCores<T> && kHead <= 64 ? 2 : 1, kWarpRows = kTileRows * kRowTiles;
  static constexpr int kTermBytes = 2 * sizeof(float);
  static constexpr int kOwned = kWarps * kWarpRows, kRows = rows_of_stage<T, kHead>(2 * kOwned, kTermBytes);
  static constexpr int kMax = kDropout && kRowTiles == 2 ? 16 : 32, kColumns = std::min(kRows, kMax);
  static constexpr int kAllRows = 2 * kOwned + 4 * kRows;  // keys, values; two stages of queries and of dO
  static constexpr std::size_t kTileBytes = kAllRows * kPitch<T, kHead> * sizeof(T);
  static constexpr std::size_t kBytes = kTileBytes + 2 * kRows * kTermBytes;
};

template <class T, int kHead, bool kDropout, bool kLimited = false>
__global__ void __launch_bounds__(kThreads, 2) dkdv_kernel(const AttentionBwdArgs a, float score_scale) {
  using Tiles = DkdvTiles<T, kHead, kDropout>;
  constexpr int kRows = Tiles::kRows, kRowTiles = Tiles::kRowTiles, kTiles = Tiles::kColumns / 8;
  constexpr int kTile = kRows * kPitch<T, kHead>, kOwned = Tiles::kOwned * kPitch<T, kHead>;
  ISOBAR_DYNAMIC_SHARED(T, k_tile);
  T *v_tile = k_tile + kOwned, *streamed = v_tile + kOwned;                // stage 0: queries, dO; stage 1: queries, dO
  float* streamed_terms = reinterpret_cast<float*>(streamed + 4 * kTile);  // a stage: of -lse kRows, of -delta kRows
  const int head_size = static_cast<int>(a.shape.head_size), q_tokens = static_cast<int>(a.shape.q_tokens);
  const int block_row = static_cast<int>(blockIdx.x) * Tiles::kOwned, warp_row = warp_id() * Tiles::kWarpRows;
  const std::conditional_t<kLimited, LimitedQueries<kRows>, SeeingQueries<kRows>> seeing(a, block_row, Tiles::kOwned);

  using OwnedCopy = TileCopy<T, kHead, Tiles::kOwned>;
  using StreamedCopy = TileCopy<T, kHead, kRows>;
  OwnedCopy k_copy(tokens_of<const T>(a.k, a.k_stride, a.shape.kv_tokens, head_size), block_row, head_size);
  OwnedCopy v_copy(tokens_of<const T>(a.v, a.v_stride, a.shape.kv_tokens, head_size), block_row, head_size);
  StreamedCopy q_copy(tokens_of<const T>(a.q, a.q_stride, q_tokens, head_size), seeing.begin, head_size);
  StreamedCopy do_copy(tokens_of<const T>(a.d_o, a.do_stride, q_tokens, head_size), seeing.begin, head_size);
  TermsCopy<kRows> terms_copy(a, seeing.begin);
  clear_padding<T, kHead>(k_tile, Tiles::kAllRows, head_size);
  k_copy.start(k_tile);
  v_copy.start(v_tile);
  q_copy.start(streamed);
  do_copy.start(streamed + kTile);
  terms_copy.start(streamed_terms);
  cp_async_commit();

  float dk[kRowTiles][kHead / 8][4], dv[kRowTiles][kHead / 8][4];
  clear(dk);
  clear(dv);
  const auto multiply = [&](int query, const T* q_rows, const T* do_rows, const float* terms, auto is_masked) {
    float minus_lse[kTiles][4], minus_delta[kTiles][4];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const TwoFloats lse = load_two(terms + column_of(n, 0)), delta = load_two(terms + kRows + column_of(n, 0));
      minus_lse[n][0] = minus_lse[n][2] = lse.first;
      minus_lse[n][1] = minus_lse[n][3] = lse.second;
      minus_delta[n][0] = minus_delta[n][2] = delta.first;
      minus_delta[n][1] = minus_delta[n][3] = delta.second;
    }
    float scores[kRowTiles][kTiles][4], dp[kRowTiles][kTiles][4];
    multiply_rows<kHead>(scores, k_tile + warp_row * kPitch<T, kHead>, q_rows, Zero());
    if constexpr (is_masked) seeing.mask(scores, block_row + warp_row, query);
    const auto start = [&](int, int n) -> const float(&)[4] { return minus_delta[n]; };
    if constexpr (kDropout)
      multiply_rows<kHead>(dp, v_tile + warp_row * kPitch<T, kHead>, do_rows, Zero());
    else
      multiply_rows<kHead>(dp, v_tile + warp_row * kPitch<T, kHead>, do_rows, start);
    const KeepMask mask(a.dropout, a.window);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const int key = block_row + warp_row + m * kTileRows;
      const std::uint32_t kept = kDropout ? mask.of_keys<kTiles>(key, query) : 0;
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          differentiate<T, kDropout>(scores[m][n][r], dp[m][n][r], score_scale, minus_lse[n][r], minus_delta[n][r],
                                     is_kept(kept, n, r), mask.scale);
    }
    add_weighted_rows<kHead>(dv, scores, do_rows);
    add_weighted_rows<kHead>(dk, dp, q_rows);
  };
  int stage = 0, terms_stage = 0;  // offset of the current queries and of their terms
  if constexpr (kIsTf32<T>) {
    cp_async_wait<0>();
    k_copy.round(k_tile);
    v_copy.round(v_tile);
  }
  // The next kRows queries, from `query` on. Only in the first turns queries may not see all keys of the block.
  const auto turn = [&](int query, auto is_masked) {
    cp_async_wait<0>();
    q_copy.round(streamed + stage);
    do_copy.round(streamed + stage + kTile);
    __syncthreads();  // this stage is loaded, and no thread reads the other one any more
    const T* q_tile = streamed + stage;
    const float* terms = streamed_terms + terms_stage;
    stage ^= 2 * kTile;
    terms_stage ^= 2 * kRows;
    if (query + kRows < q_tokens) {
      q_copy.start(streamed + stage);
      do_copy.start(streamed + stage + kTile);
      terms_copy.start(streamed_terms + terms_stage);
      cp_async_commit();
    }
#pragma unroll 1
    for (int row = 0; row < kRows; row += Tiles::kColumns) {
      const T* q_rows = q_tile + row * kPitch<T, kHead>;
      multiply(query + row, q_rows, q_rows + kTile, terms + row, is_masked);
    }
  };
  take_turns(seeing, q_tokens, turn);

  const Destination to_dk{a.dk, a.dk_stride, a.shape.kv_tokens, a.grad_dtype, a.dkv_mode};
  const Destination to_dv{a.dv, a.dv_stride, a.shape.kv_tokens, a.grad_dtype, a.dkv_mode};
  const auto scale = static_cast<float>(a.scale);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    const int row = block_row + warp_row + m * kTileRows;
    store_rows<T, kHead>(to_dk, row, head_size, dk[m], {scale, scale});
    store_rows<T, kHead>(to_dv, row, head_size, dv[m], {1, 1});
  }
}

template <class T, int kHead>
void launch_limited_dkdv(const AttentionBwdArgs& a, Stream stream) {
  using Tiles = DkdvTiles<T, kHead, true>;
  launch("attention_dkdv: intervals", dkdv_kernel<T, kHead, true, true>,
         grid_of(a.shape, a.shape.kv_tokens, Tiles::kOwned), dim3(kThreads), Tiles::kBytes, stream, a,
         score_scale_of(a.scale));
}

template <class T, int kHead>
void launch_dkdv(const AttentionBwdArgs& a, Stream stream) {
  if (a.keys.are_limited()) return launch_limited_dkdv<T, kHead>(a, stream);
  visit_dropout<T>(a.dropout, [&](auto dropout) {
    using Tiles = DkdvTiles<T, kHead, dropout()>;
    launch("attention_dkdv", dkdv_kernel<T, kHead, dropout()>, grid_of(a.shape, a.shape.kv_tokens, Tiles::kOwned),
           dim3(kThreads), Tiles::kBytes, stream, a, score_scale_of(a.scale));
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
