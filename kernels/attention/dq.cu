// Attention backward, the queries' half: a block owns 64 queries and streams the keys and values.
#include "kernels/attention/tiles.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

namespace {

template <class T, int kHead>
__global__ void __launch_bounds__(kThreads, 2) dq_kernel(const AttentionBwd a) {
  using Shared = BackwardShared<T, kHead>;
  constexpr int kRows = Shared::kRows, kTiles = kRows / 8;
  ISOBAR_DYNAMIC_SHARED(T, memory);
  const Shared shared{memory};
  const int head_size = static_cast<int>(a.shape.head_size);
  const auto [q, k, v, d_o] = BackwardTokens<T>(a, head_size);
  const int block_row = static_cast<int>(blockIdx.x) * kOwnedRows, warp_row = warp_id() * kWarpRows;
  const auto scale = static_cast<float>(a.scale);
  const KeepMask mask(a.dropout);

  shared.load_owned(q, d_o, block_row, head_size);
  shared.load_streamed(0, k, v, 0, head_size);
  cp_async_commit();

  float lse[2], delta[2];
  const std::int64_t head_row = (blockIdx.z * a.shape.heads + blockIdx.y) * a.shape.q_tokens;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = block_row + warp_row + row_of(2 * half);
    const bool valid = row < q.count;
    lse[half] = valid ? static_cast<const float*>(a.lse)[head_row + row] : INFINITY;
    delta[half] = valid ? static_cast<const float*>(a.workspace)[head_row + row] : 0;
  }

  float dq[kHead / 8][4], scores[kTiles][4], dp[kTiles][4];
  clear(dq);
  int stage = 0;
  for (int key = 0; key < k.count; key += kRows, stage ^= 1) {
    if (key + kRows < k.count) shared.load_streamed(stage ^ 1, k, v, key + kRows, head_size);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();

    multiply_rows<kHead>(scores, shared.owned(0) + warp_row * kPitch<T, kHead>, shared.streamed(0, stage));
    multiply_rows<kHead>(dp, shared.owned(1) + warp_row * kPitch<T, kHead>, shared.streamed(1, stage));
    const std::uint64_t corner = static_cast<std::uint64_t>(block_row + warp_row) * mask.keys + key;
    const std::uint32_t kept = mask.bits<kTiles>(corner, mask.keys, 1);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        // Padding keys get a score of -inf, so that P = 0: a score of zero could weigh more than all others.
        if (key + column_of(n, r) >= k.count) scores[n][r] = -INFINITY;
        differentiate<T>(scores[n][r], dp[n][r], scale, lse[r / 2], delta[r / 2], (kept >> (4 * n + r) & 1u) != 0,
                         mask.scale);
      }
    }
    add_weighted_rows<kHead>(dq, dp, shared.streamed(0, stage));
    __syncthreads();  // the next turn overwrites this stage
  }

  const Destination to{a.dq, a.dq_stride, a.shape.q_tokens, a.grad_dtype, a.dq_mode};
  store_rows<T, kHead>(to, block_row + warp_row, head_size, dq, {scale, scale});
}

}  // namespace

void launch_dq(const AttentionBwd& a, Stream stream) {
  visit_cuda_floating(a.dtype, [&]<class T>(Type<T>) {
    visit_head_size<T>(a.shape.head_size, [&](auto head) {
      launch("attention_dq", dq_kernel<T, head()>, grid_of(a.shape, a.shape.q_tokens), dim3(kThreads),
             BackwardShared<T, head()>::kBytes, stream, a);
    });
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
