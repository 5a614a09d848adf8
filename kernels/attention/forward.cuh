// Attention forward: a block owns queries and streams the keys and values. It keeps a running maximum and sum of each
// row's exponentials (Milakov & Gimelshein 2018), and rescales the output when the maximum grows.
#pragma once

#include <algorithm>

#include "kernels/attention/softmax.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

// 16-row tiles a warp: as many as registers allow. Tokens that a block owns, and tokens of a stage. Large heads with a
// dropout generator leave fewer registers for scores.
template <class T, int kHead, bool kDropout, bool kLimited = false>
struct ForwardTiles {
  static constexpr int kRowTiles = sizeof(T) == 2 || (kIsTf32<T> && kHead <= 64) ? 2 : 1;
  static constexpr int kWarpRows = kTileRows * kRowTiles;
  static constexpr int kOwned = kWarps * kWarpRows, kOfLarge = sizeof(T) == 2 && kHead > 96 ? 16 : 32;
  static constexpr int kMax = kDropout && kHead > (kLimited ? 64 : 80) ? kOfLarge : 64;
  static constexpr int kRows = std::min(kMax, rows_of_stage<T, kHead>(kOwned));
  static constexpr int kAllRows = kOwned + 4 * kRows;  // queries; two stages of keys and of values
  static constexpr std::size_t kBytes = kAllRows * kPitch<T, kHead> * sizeof(T);
};

template <class T, int kHead, bool kDropout, bool kLimited = false>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(const AttentionFwdArgs a, float score_scale) {
  using Tiles = ForwardTiles<T, kHead, kDropout, kLimited>;
  constexpr int kRows = Tiles::kRows, kRowTiles = Tiles::kRowTiles, kTiles = kRows / 8;
  constexpr int kTile = kRows * kPitch<T, kHead>;
  ISOBAR_DYNAMIC_SHARED(T, q_tile);
  T* streamed = q_tile + Tiles::kOwned * kPitch<T, kHead>;  // stage 0: keys, values; stage 1: keys, values
  const int head_size = static_cast<int>(a.shape.head_size), kv_tokens = static_cast<int>(a.shape.kv_tokens);
  const int block_row = tile_of_queries(a.causal) * Tiles::kOwned, warp_row = warp_id() * Tiles::kWarpRows;
  const std::conditional_t<kLimited, LimitedKeys<kRows>, SeenKeys> seen(a, block_row, Tiles::kOwned);

  TileCopy<T, kHead, Tiles::kOwned> q_copy(tokens_of<const T>(a.q, a.q_stride, a.shape.q_tokens, head_size), block_row,
                                           head_size);
  TileCopy<T, kHead, kRows> k_copy(tokens_of<const T>(a.k, a.k_stride, kv_tokens, head_size), begin(seen), head_size);
  TileCopy<T, kHead, kRows> v_copy(tokens_of<const T>(a.v, a.v_stride, kv_tokens, head_size), begin(seen), head_size);
  clear_padding<T, kHead>(q_tile, Tiles::kAllRows, head_size);
  q_copy.start(q_tile);
  k_copy.start(streamed);
  v_copy.start(streamed + kTile);
  cp_async_commit();

  float out[kRowTiles][kHead / 8][4];
  RunningSoftmax<T> softmax[kRowTiles];
  clear(out);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) softmax[m].start(seen, block_row + warp_row + m * kTileRows);
  int stage = 0;  // offset of the current keys
  if constexpr (kIsTf32<T>) {
    cp_async_wait<0>();
    q_copy.round(q_tile);
  }

  // The next kRows keys, from `key` on. Only in the last turns keys may be hidden. The other turns need no check, and
  // start the next copy even if nothing follows.
  const auto turn = [&](int key, auto is_masked) {
    cp_async_wait<0>();
    k_copy.round(streamed + stage);
    v_copy.round(streamed + stage + kTile);
    __syncthreads();  // this stage is loaded, and no thread reads the other one any more
    const T* k_tile = streamed + stage;
    stage ^= 2 * kTile;
    const auto copy_next = [&] {
      if (is_masked() && key + kRows >= seen.end) return;
      k_copy.start(streamed + stage);
      v_copy.start(streamed + stage + kTile);
      cp_async_commit();
    };

    // 16 bits: copies start while tensor cores finish the product. TF32 has no registers left for that.
    float scores[kRowTiles][kTiles][4];
    if constexpr (sizeof(T) != 2) copy_next();
    multiply_rows<kHead>(scores, q_tile + warp_row * kPitch<T, kHead>, k_tile, Zero());
    if constexpr (sizeof(T) == 2) copy_next();
    if constexpr (is_masked) seen.mask(scores, block_row + warp_row, key);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      float shrink[2];
      softmax[m].update(scores[m], score_scale, shrink);
#pragma unroll
      for (int c = 0; c < kHead / 8; ++c)
#pragma unroll
        for (int r = 0; r < 4; ++r) out[m][c][r] *= shrink[r / 2];
    }
    if constexpr (kDropout) {
      const KeepMask mask(a.dropout, a.window);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        const std::uint32_t kept = mask.of_queries<kTiles>(block_row + warp_row + m * kTileRows, key);
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
          for (int r = 0; r < 4; ++r) scores[m][n][r] = is_kept(kept, n, r) ? scores[m][n][r] : 0;
      }
    }
    add_weighted_rows<kHead>(out, scores, k_tile + kTile);
  };
  take_turns<kRows>(seen, turn);

  const Destination o{a.o, a.o_stride, a.shape.q_tokens, a.o_dtype, Grad::overwrite};
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    const int row = block_row + warp_row + m * kTileRows;
    float factor[2];
    finish_rows(a, softmax[m], row, kDropout ? KeepMask(a.dropout, a.window).scale : 1, factor);
    store_rows<T, kHead>(o, row, head_size, out[m], factor);
  }
}

template <class T, int kHead>
void launch_limited_forward(const AttentionFwdArgs& a, Stream stream) {
  using Tiles = ForwardTiles<T, kHead, true, true>;
  launch("attention_fwd: intervals", forward_kernel<T, kHead, true, true>,
         grid_of(a.shape, a.shape.q_tokens, Tiles::kOwned), dim3(kThreads), Tiles::kBytes, stream, a,
         score_scale_of(a.scale));
}

template <class T, int kHead>
void launch_forward(const AttentionFwdArgs& a, Stream stream) {
  if (a.keys.are_limited()) return launch_limited_forward<T, kHead>(a, stream);
  visit_dropout<T>(a.dropout, [&](auto dropout) {
    using Tiles = ForwardTiles<T, kHead, dropout()>;
    launch("attention_fwd", forward_kernel<T, kHead, dropout()>, grid_of(a.shape, a.shape.q_tokens, Tiles::kOwned),
           dim3(kThreads), Tiles::kBytes, stream, a, score_scale_of(a.scale));
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
