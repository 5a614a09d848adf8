// The softmax of the forward pass, which keeps a running maximum and sum of each row's exponentials (Milakov &
// Gimelshein 2018).
#pragma once

#include "kernels/attention/tiles.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

// The softmax state of one lane's two rows, in powers of 2. Before total(), the sum is over this lane's columns only.
template <class T>
struct RunningSoftmax {
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};

  // The first row of the tile is query row0. A query that sees no key starts with a finite maximum, so that its sum
  // stays 0.
  __device__ __forceinline__ void start(const SeenKeys& seen, int row0) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (seen.none_of(row0 + row_of(2 * half))) largest[half] = 0;
  }
  // The same where a query may see its first key after some turns: with -inf its sum would be NaN, -inf - -inf. It is
  // below all scores.
  template <int kRows>
  __device__ __forceinline__ void start(const LimitedKeys<kRows>&, int) {
    constexpr float kBelowAll = -1e30f;
    largest[0] = largest[1] = kBelowAll;
  }

  // Turns scores into exponentials relative to the running maximum; returns the factor by which each row shrinks.
  template <int kTiles>
  __device__ __forceinline__ void update(float (&scores)[kTiles][4], float score_scale, float (&shrink)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float row_max = -INFINITY;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) row_max = fmaxf(row_max, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      row_max = fmaxf(row_max, __shfl_xor_sync(kAllLanes, row_max, 1));
      row_max = fmaxf(row_max, __shfl_xor_sync(kAllLanes, row_max, 2));
      const float before = largest[half];
      largest[half] = fmaxf(before, row_max * score_scale);
      shrink[half] = exponential<T>(before - largest[half]);
      sum[half] *= shrink[half];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int r = 2 * half; r < 2 * half + 2; ++r) {
          scores[n][r] = exponential<T>(fmaf(scores[n][r], score_scale, -largest[half]));
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

// Ends a lane's two rows; the tile's first row is token row0. Writes their log-sum-exp, and returns the factors for
// their outputs.
template <class T>
__device__ __forceinline__ void finish_rows(const AttentionFwdArgs& a, const RunningSoftmax<T>& softmax, int row0,
                                            float keep_scale, float (&factor)[2]) {
  constexpr auto kLn2 = std::numbers::ln2_v<float>;
  const int count = static_cast<int>(a.shape.q_tokens);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = softmax.total(half);
    const int row = row0 + row_of(2 * half);
    factor[half] = total == 0 ? 0 : keep_scale / total;
    if (lane_id() % 4 == 0 && row < count) {
      const std::int64_t head = blockIdx.z * a.shape.heads + blockIdx.y;
      static_cast<float*>(a.lse)[head * count + row] = fmaf(softmax.largest[half], kLn2, logf(total));
    }
  }
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
