// Attention forward: a block owns 64 queries and streams the keys and values, keeping a running maximum and sum of each
// row's exponentials (Milakov & Gimelshein 2018) and rescaling the output when the maximum grows.
#include "kernels/attention/tiles.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

namespace attention {
namespace {

template <class T, int kHead>
inline constexpr std::size_t kForwardBytes = (kOwnedRows + 4 * kForwardRows<T, kHead>)*kPitch<T, kHead> * sizeof(T);

// Blocks that must fit a multiprocessor; 0: not said. Unasked, ptxas makes room for five there too, but then it spills.
template <class T, int kHead>
inline constexpr int kForwardBlocks = sizeof(T) == 4 && kHead == 32 ? 5 : 0;

// The softmax of one lane's two rows so far. The sum is of this lane's columns only until total().
template <class T>
struct RunningSoftmax {
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};

  // Turns scaled scores into exponentials relative to the largest so far; returns by what each row shrinks.
  template <int kTiles>
  __device__ __forceinline__ void update(float (&scores)[kTiles][4], float (&shrink)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float row_max = -INFINITY;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) row_max = fmaxf(row_max, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      row_max = fmaxf(row_max, __shfl_xor_sync(kAllLanes, row_max, 1));
      row_max = fmaxf(row_max, __shfl_xor_sync(kAllLanes, row_max, 2));
      const float before = largest[half];
      largest[half] = fmaxf(before, row_max);
      shrink[half] = exponential<T>(before - largest[half]);
      sum[half] *= shrink[half];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int r = 2 * half; r < 2 * half + 2; ++r) {
          scores[n][r] = exponential<T>(scores[n][r] - largest[half]);
          sum[half] += scores[n][r];
        }
      }
    }
  }

  __device__ __forceinline__ float total(int half) const {
    const float pair = sum[half] + __shfl_xor_sync(kAllLanes, sum[half], 1);
    return pair + __shfl_xor_sync(kAllLanes, pair, 2);
  }
};

// Ends a lane's two rows, the first of the warp's being token row0: writes their log-sum-exp and tells by what their
// outputs are multiplied.
template <class T>
__device__ __forceinline__ void finish_rows(const AttentionFwd& a, const RunningSoftmax<T>& softmax, int row0,
                                            float keep_scale, float (&factor)[2]) {
  const int count = static_cast<int>(a.shape.q_tokens);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = softmax.total(half);
    const int row = row0 + row_of(2 * half);
    factor[half] = keep_scale / total;
    if (lane_id() % 4 == 0 && row < count) {
      const std::int64_t head = blockIdx.z * a.shape.heads + blockIdx.y;
      static_cast<float*>(a.lse)[head * count + row] = softmax.largest[half] + logf(total);
    }
  }
}

template <class T, int kHead>
__global__ void __launch_bounds__(kThreads, kForwardBlocks<T, kHead>) forward_kernel(const AttentionFwd a) {
  constexpr int kRows = kForwardRows<T, kHead>, kTiles = kRows / 8, kStage = kRows * kPitch<T, kHead>;
  ISOBAR_DYNAMIC_SHARED(T, q_tile);
  T* streamed = q_tile + kOwnedRows * kPitch<T, kHead>;  // stage 0: keys, values; stage 1: keys, values
  const int head_size = static_cast<int>(a.shape.head_size);
  const auto q = tokens_of<const T>(a.q, a.q_stride, a.shape.q_tokens, head_size);
  const auto k = tokens_of<const T>(a.k, a.k_stride, a.shape.kv_tokens, head_size);
  const auto v = tokens_of<const T>(a.v, a.v_stride, a.shape.kv_tokens, head_size);
  const int block_row = static_cast<int>(blockIdx.x) * kOwnedRows, warp_row = warp_id() * kWarpRows;
  const auto scale = static_cast<float>(a.scale);
  const KeepMask mask(a.dropout);

  const auto load_stage = [&](int key, int stage) {
    load_tile<T, kHead, kRows>(streamed + 2 * stage * kStage, k, key, head_size);
    load_tile<T, kHead, kRows>(streamed + (2 * stage + 1) * kStage, v, key, head_size);
  };
  load_tile<T, kHead, kOwnedRows>(q_tile, q, block_row, head_size);
  load_stage(0, 0);
  cp_async_commit();

  float out[kHead / 8][4], scores[kTiles][4], shrink[2];
  RunningSoftmax<T> softmax;
  clear(out);
  int stage = 0;
  for (int key = 0; key < k.count; key += kRows, stage ^= 1) {
    if (key + kRows < k.count) load_stage(key + kRows, stage ^ 1);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();

    const T* k_tile = streamed + 2 * stage * kStage;
    multiply_rows<kHead>(scores, q_tile + warp_row * kPitch<T, kHead>, k_tile);
    const bool ragged = key + kRows > k.count;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        scores[n][r] = ragged && key + column_of(n, r) >= k.count ? -INFINITY : scores[n][r] * scale;

    softmax.update(scores, shrink);
    const std::uint64_t corner = static_cast<std::uint64_t>(block_row + warp_row) * mask.keys + key;
    const std::uint32_t kept = mask.bits<kTiles>(corner, mask.keys, 1);
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r) scores[n][r] = (kept >> (4 * n + r) & 1u) != 0 ? scores[n][r] : 0;
#pragma unroll
    for (int c = 0; c < kHead / 8; ++c)
#pragma unroll
      for (int r = 0; r < 4; ++r) out[c][r] *= shrink[r / 2];
    add_weighted_rows<kHead>(out, scores, k_tile + kStage);
    __syncthreads();  // the next turn overwrites this stage
  }

  float factor[2];
  finish_rows(a, softmax, block_row + warp_row, mask.scale, factor);
  const Destination o{a.o, a.o_stride, a.shape.q_tokens, a.o_dtype, Grad::overwrite};
  store_rows<T, kHead>(o, block_row + warp_row, head_size, out, factor);
}

}  // namespace
}  // namespace attention

void attention_fwd(const AttentionFwd& arguments, Stream stream) {
  const AttentionFwd a = checked_attention(arguments);
  attention::check_for_cuda("attention_fwd", a.shape, a.dropout.window, a.dtype);
  visit_cuda_floating(a.dtype, [&]<class T>(Type<T>) {
    attention::visit_head_size<T>(a.shape.head_size, [&](auto head) {
      launch("attention_fwd", attention::forward_kernel<T, head()>, attention::grid_of(a.shape, a.shape.q_tokens),
             dim3(attention::kThreads), attention::kForwardBytes<T, head()>, stream, a);
    });
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
