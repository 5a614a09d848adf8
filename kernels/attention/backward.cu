// Attention backward: delta for every query, then the gradients of the keys and values (dkdv.cu) and of the
// queries (dq.cu). The two halves compute P and dS twice; in return nothing is added across blocks, so there
// are no atomics and no scratch beyond delta.
#include "kernels/attention/tiles.cuh"
#include "kernels/common/math.h"
#include "kernels/cuda/reduce.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

namespace attention {
namespace {

// One warp a query and head: delta = sum over c of dO·O. O is in T or in fp32.
template <class T, class O>
__global__ void __launch_bounds__(kThreads) delta_kernel(const AttentionBwd a) {
  const AttentionShape& s = a.shape;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp_id();  // of [B, Tq, NH]
  if (row >= s.batch * s.q_tokens * s.heads) return;
  const std::int64_t head = row % s.heads, token = row / s.heads;  // token of all samples'
  const O* o = static_cast<const O*>(a.o) + token * a.o_stride + head * s.head_size;
  const T* d_o = static_cast<const T*>(a.d_o) + token * a.do_stride + head * s.head_size;
  const int column = lane_id() * Pack<T>::kSize;
  float sum = 0;
  if (column < s.head_size) {
    const Pack<T> y = load_pack(d_o + column);
#pragma unroll
    for (int first = 0; first < Pack<T>::kSize; first += Pack<O>::kSize) {
      const Pack<O> x = load_pack(o + column + first);
#pragma unroll
      for (int i = 0; i < Pack<O>::kSize; ++i) sum += to_float(x[i]) * to_float(y[first + i]);
    }
  }
  sum = warp_sum(sum);
  if (lane_id() == 0) {
    const std::int64_t sample = token / s.q_tokens, query = token % s.q_tokens;
    static_cast<float*>(a.workspace)[(sample * s.heads + head) * s.q_tokens + query] = sum;
  }
}

}  // namespace
}  // namespace attention

void attention_bwd(const AttentionBwd& arguments, Stream stream) {
  const AttentionBwd a = checked_attention(arguments);
  attention::check_for_cuda("attention_bwd", a.shape, a.dropout.window, a.dtype);
  const std::int64_t rows = a.shape.batch * a.shape.q_tokens * a.shape.heads;
  visit_cuda_floating(a.dtype, [&]<class T>(Type<T>) {
    const auto kernel = a.o_dtype == a.dtype ? attention::delta_kernel<T, T> : attention::delta_kernel<T, float>;
    const auto blocks = static_cast<unsigned>(ceil_div(rows, attention::kWarps));
    launch("attention_delta", kernel, dim3(blocks), dim3(attention::kThreads), 0, stream, a);
  });
  attention::launch_dkdv(a, stream);
  attention::launch_dq(a, stream);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
