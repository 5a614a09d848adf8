// Attention over a cache on CUDA: a block has one head of one sample and walks over tiles of kThreads keys. A thread
// computes the score of one key of the tile; then a thread adds up one channel of the values. The softmax is online:
// sums are scaled down when a larger score comes.
#include "kernels/attention/cached.h"

#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kThreads = 128, kChunk = 8;  // threads: also the most channels of a head

struct Cached {
  std::int64_t heads, head_size, capacity, q_stride, k_stride, v_stride, o_stride;
  float scale;
  const std::int32_t* position;
  Input q, k, v;
  Output keys, values, o;
};

__device__ __forceinline__ float element(const Input& a, std::int64_t i) {
  float x[1];
  load(a, i, 1, x);
  return x[0];
}

__device__ __forceinline__ Input read_of(const Output& a) {
  return {a.data, a.dtype, a.packed};
}

// scale·q·key, of a key that begins at element `at`.
__device__ __forceinline__ float score_of(const Cached& a, const float* q, std::int64_t at) {
  float sum = 0;
  for (int c = 0; c < a.head_size; c += kChunk) {
    float key[kChunk];
    load(read_of(a.keys), at + c, kChunk, key);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum += q[c + i] * key[i];
  }
  return a.scale * sum;
}

__global__ void __launch_bounds__(kThreads) attention_cached_kernel(Cached a) {
  __shared__ float q[kThreads], p[kThreads];
  const int thread = static_cast<int>(threadIdx.x), size = static_cast<int>(a.head_size);
  const std::int64_t b = blockIdx.y, channel = blockIdx.x * a.head_size, width = a.heads * a.head_size;
  const int position = a.position[b];
  const bool has_channel = thread < size;
  const std::int64_t first = b * a.capacity * width + channel;  // of token 0
  if (has_channel && position >= 0) {
    const float key[1] = {element(a.k, b * a.k_stride + channel + thread)};
    const float value[1] = {element(a.v, b * a.v_stride + channel + thread)};
    store(a.keys, first + position * width + thread, 1, key);
    store(a.values, first + position * width + thread, 1, value);
    q[thread] = element(a.q, b * a.q_stride + channel + thread);
  }
  __syncthreads();
  float max = -INFINITY, sum = 0, o = 0;
  for (int begin = 0; begin <= position; begin += kThreads) {
    const int j = begin + thread;
    const float score = j <= position ? score_of(a, q, first + j * width) : -INFINITY;
    const float new_max = fmaxf(max, block_max(score));
    const float factor = begin == 0 ? 0.0f : expf(max - new_max);
    p[thread] = j <= position ? expf(score - new_max) : 0.0f;
    sum = sum * factor + block_sum(p[thread]);  // a barrier: all of p is written
    o *= factor;
    const int count = position - begin + 1 < kThreads ? position - begin + 1 : kThreads;
    if (has_channel)
      for (int i = 0; i < count; ++i) o += p[i] * element(read_of(a.values), first + (begin + i) * width + thread);
    max = new_max;
    __syncthreads();  // all of p is read
  }
  const float result[1] = {position < 0 ? 0.0f : o / sum};
  if (has_channel) store(a.o, b * a.o_stride + channel + thread, 1, result);
}

}  // namespace

void attention_cached(const AttentionCachedArgs& a, Stream stream) {
  check_attention_cached(a);
  require_cuda_dtypes("attention_cached", a.dtype);
  ISOBAR_CHECK(a.batch <= 65535 && a.heads <= 65535, "attention_cached: bad shape for a GPU: batch ", a.batch, ", ",
               a.heads, " heads");
  launch("attention_cached", attention_cached_kernel,
         dim3(static_cast<unsigned>(a.heads), static_cast<unsigned>(a.batch)), dim3(kThreads), 0, stream,
         Cached{.heads = a.heads,
                .head_size = a.head_size,
                .capacity = a.capacity,
                .q_stride = a.q_stride,
                .k_stride = a.k_stride,
                .v_stride = a.v_stride,
                .o_stride = a.o_stride,
                .scale = static_cast<float>(a.scale),
                .position = a.position,
                .q = input<1>(a.q, a.dtype),
                .k = input<1>(a.k, a.dtype),
                .v = input<1>(a.v, a.dtype),
                .keys = output<kChunk>(a.keys, a.dtype, a.head_size),
                .values = output<1>(a.values, a.dtype),
                .o = output<1>(a.o, a.dtype)});
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
