// Attention backward, first part: delta and log-sum-exp of every query, in the form that the two halves need
// (backward.cuh).
#include "kernels/attention/heads.cuh"
#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

#include <numbers>

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {
namespace {

constexpr int kDeltaThreads = 128, kRowsPerGroup = 2;

// kLanes neighbouring threads take kRowsPerGroup queries in turn; all loads come first. O is in T or in fp32.
template <class T, class O, int kLanes>
__global__ void __launch_bounds__(kDeltaThreads, 8) delta_kernel(const AttentionBwdArgs a) {
  constexpr int kGroups = kDeltaThreads / kLanes;
  const AttentionShape& s = a.shape;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, column = lane * Pack<T>::kSize;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kGroups * kRowsPerGroup + threadIdx.x / kLanes;
  const std::int64_t head = blockIdx.z * s.heads + blockIdx.y;
  const std::int64_t token = blockIdx.z * s.q_tokens + first, in_token = blockIdx.y * s.head_size + column;
  const T* d_o = static_cast<const T*>(a.d_o) + token * a.do_stride + in_token;
  const O* o = static_cast<const O*>(a.o) + token * a.o_stride + in_token;
  const float* lse_of_first = static_cast<const float*>(a.lse) + head * s.q_tokens + first;
  // queries that are left
  const int queries = static_cast<int>(min(s.q_tokens - first, std::int64_t{kRowsPerGroup} * kGroups));
  Pack<T> y[kRowsPerGroup] = {};
  Pack<O> x[kRowsPerGroup][Pack<T>::kSize / Pack<O>::kSize] = {};
  float lse[kRowsPerGroup];
#pragma unroll
  for (int i = 0; i < kRowsPerGroup; ++i) {
    lse[i] = INFINITY;
    if (i * kGroups >= queries) continue;
    if (lane == 0) lse[i] = lse_of_first[i * kGroups];
    if (column >= s.head_size) continue;
    y[i] = load_pack(d_o + i * kGroups * a.do_stride);
#pragma unroll
    for (int part = 0; part < Pack<T>::kSize / Pack<O>::kSize; ++part)
      x[i][part] = load_pack(o + i * kGroups * a.o_stride + part * Pack<O>::kSize);
  }
  const std::int64_t padded = attention_padded_queries(s.q_tokens);
  float* minus_lse = static_cast<float*>(a.workspace);
  float* minus_delta = minus_lse + s.batch * s.heads * padded;
#pragma unroll
  for (int i = 0; i < kRowsPerGroup; ++i) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < Pack<T>::kSize; ++c)
      sum += to_float(x[i][c / Pack<O>::kSize][c % Pack<O>::kSize]) * to_float(y[i][c]);
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    if (lane != 0) continue;
    const std::int64_t query = head * padded + first + i * kGroups;
    minus_lse[query] = fabsf(lse[i]) == INFINITY ? -INFINITY : -lse[i] * std::numbers::log2e_v<float>;
    minus_delta[query] = -sum;
  }
}

template <class T, class O>
void launch_delta_in(const AttentionBwdArgs& a, Stream stream) {
  const auto launch_with = [&](auto lanes) {
    constexpr int kRows = kDeltaThreads / lanes() * kRowsPerGroup;
    const auto blocks = static_cast<unsigned>(attention_padded_queries(a.shape.q_tokens) / kRows);
    launch("attention_delta", delta_kernel<T, O, lanes()>,
           dim3(blocks, static_cast<unsigned>(a.shape.heads), static_cast<unsigned>(a.shape.batch)),
           dim3(kDeltaThreads), 0, stream, a);
  };
  if (a.shape.head_size <= 8 * Pack<T>::kSize) return launch_with(std::integral_constant<int, 8>{});
  if (a.shape.head_size <= 16 * Pack<T>::kSize) return launch_with(std::integral_constant<int, 16>{});
  if constexpr (sizeof(T) > 2) launch_with(std::integral_constant<int, 32>{});
}

}  // namespace

void launch_delta(const AttentionBwdArgs& a, Stream stream) {
  visit_cuda_floating(a.dtype, [&]<class T>(Type<T>) {
    if (a.o_dtype == a.dtype) return launch_delta_in<T, T>(a, stream);
    launch_delta_in<T, float>(a, stream);
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
