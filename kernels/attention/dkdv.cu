// Attention backward, the keys' half: a block owns 64 keys and streams the queries. Scores are computed transposed,
// keys by queries, so that a warp's dropout(P)ᵀ and dSᵀ are already where the products with dO and Q want them.
#include "kernels/attention/tiles.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

namespace {

template <class T, int kHead>
__global__ void __launch_bounds__(kThreads) dkdv_kernel(const AttentionBwd a) {
  using Shared = BackwardShared<T, kHead>;
  constexpr int kRows = Shared::kRows, kTiles = kRows / 8;
  ISOBAR_DYNAMIC_SHARED(T, memory);
  const Shared shared{memory};
  const int head_size = static_cast<int>(a.shape.head_size);
  const auto [q, k, v, d_o] = BackwardTokens<T>(a, head_size);
  const std::int64_t head_row = (blockIdx.z * a.shape.heads + blockIdx.y) * a.shape.q_tokens;
  const float* lse = static_cast<const float*>(a.lse) + head_row;
  const float* delta = static_cast<const float*>(a.workspace) + head_row;
  const int block_row = static_cast<int>(blockIdx.x) * kOwnedRows, warp_row = warp_id() * kWarpRows;
  const auto scale = static_cast<float>(a.scale);
  const KeepMask mask(a.dropout);

  shared.load_owned(k, v, block_row, head_size);
  shared.load_streamed(0, q, d_o, 0, head_size);
  cp_async_commit();

  float dk[kHead / 8][4], dv[kHead / 8][4], scores[kTiles][4], dp[kTiles][4];
  clear(dk);
  clear(dv);
  int stage = 0;
  for (int query = 0; query < q.count; query += kRows, stage ^= 1) {
    if (query + kRows < q.count) shared.load_streamed(stage ^ 1, q, d_o, query + kRows, head_size);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();

    multiply_rows<kHead>(scores, shared.owned(0) + warp_row * kPitch<T, kHead>, shared.streamed(0, stage));
    multiply_rows<kHead>(dp, shared.owned(1) + warp_row * kPitch<T, kHead>, shared.streamed(1, stage));
    const std::uint64_t corner = static_cast<std::uint64_t>(query) * mask.keys + block_row + warp_row;
    const std::uint32_t kept = mask.bits<kTiles>(corner, 1, mask.keys);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        // Padding queries get lse = inf, so that P = exp(-inf) = 0.
        const int column = query + column_of(n, r);
        const bool valid = column < q.count;
        differentiate<T>(scores[n][r], dp[n][r], scale, valid ? lse[column] : INFINITY, valid ? delta[column] : 0,
                         (kept >> (4 * n + r) & 1u) != 0, mask.scale);
      }
    }
    add_weighted_rows<kHead>(dv, scores, shared.streamed(1, stage));
    add_weighted_rows<kHead>(dk, dp, shared.streamed(0, stage));
    __syncthreads();  // the next turn overwrites this stage
  }

  const Destination to_dk{a.dk, a.dk_stride, a.shape.kv_tokens, a.grad_dtype, a.dkv_mode};
  const Destination to_dv{a.dv, a.dv_stride, a.shape.kv_tokens, a.grad_dtype, a.dkv_mode};
  store_rows<T, kHead>(to_dk, block_row + warp_row, head_size, dk, {scale, scale});
  store_rows<T, kHead>(to_dv, block_row + warp_row, head_size, dv, {1, 1});
}

}  // namespace

void launch_dkdv(const AttentionBwd& a, Stream stream) {
  visit_cuda_floating(a.dtype, [&]<class T>(Type<T>) {
    visit_head_size<T>(a.shape.head_size, [&](auto head) {
      launch("attention_dkdv", dkdv_kernel<T, head()>, grid_of(a.shape, a.shape.kv_tokens), dim3(kThreads),
             BackwardShared<T, head()>::kBytes, stream, a);
    });
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
