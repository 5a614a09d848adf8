// Merging two attentions: a thread has four elements of a head, which have one log-sum-exp, and takes token after
// token.
#include "kernels/attention/merge.h"

#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kMergeThreads = 128, kPack = Pack<float>::kSize;

struct Merged {
  float weight, other_weight, lse;
};
__device__ __forceinline__ Merged merge(float lse, float other_lse) {
  const float max_lse = lse < other_lse ? other_lse : lse;
  if (max_lse == -INFINITY && other_lse == -INFINITY) return {0, 0, -INFINITY};
  const float own = expf(lse - max_lse), other = expf(other_lse - max_lse), sum = own + other;
  return {own / sum, other / sum, max_lse + logf(sum)};
}

// The grid: packs of a token, tokens, samples. The thread with the first pack of a head also writes its log-sum-exp. So
// one turn of one block must have all packs of a head: blocks take whole heads.
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const AttentionMergeArgs a, int heads_per_block) {
  const int packs = static_cast<int>(a.head_size) / kPack;
  const int head_in_block = static_cast<int>(threadIdx.x) / packs, pack = static_cast<int>(threadIdx.x) % packs;
  const std::int64_t head = static_cast<std::int64_t>(blockIdx.x) * heads_per_block + head_in_block;
  const bool works = head_in_block < heads_per_block && head < a.heads;
  for (std::int64_t t = blockIdx.y; t < a.tokens; t += gridDim.y) {
    Merged merged{};
    bool is_empty = false, other_is_empty = false;
    float* lse = static_cast<float*>(a.lse) + (blockIdx.z * a.heads + head) * a.tokens + t;
    if (works) {
      const float other_lse = static_cast<const float*>(a.other_lse)[(blockIdx.z * a.heads + head) * a.tokens + t];
      is_empty = *lse == -INFINITY;
      other_is_empty = other_lse == -INFINITY;
      merged = merge(*lse, other_lse);
    }
    __syncthreads();  // all packs of a head have read its log-sum-exp before one of them writes it
    if (!works) continue;
    if (pack == 0) *lse = merged.lse;
    const std::int64_t token = blockIdx.z * a.tokens + t, column = head * a.head_size + pack * kPack;
    float* o = static_cast<float*>(a.o) + token * a.o_stride + column;
    const float* other_o = static_cast<const float*>(a.other_o) + token * a.other_stride + column;
    Pack<float> sum{};
    if (!is_empty) {
      const Pack<float> x = load_pack(o);
      for (int i = 0; i < kPack; ++i) sum[i] = x[i] * merged.weight;
    }
    if (!other_is_empty) {
      const Pack<float> x = load_pack(other_o);
      for (int i = 0; i < kPack; ++i) sum[i] += x[i] * merged.other_weight;
    }
    store_pack(o, sum);
  }
}

}  // namespace

void attention_merge(const AttentionMergeArgs& a, Stream stream) {
  check_attention_merge(a);
  require_cuda_dtypes("attention_merge", a.dtype);
  ISOBAR_CHECK(a.batch <= 65535 && a.head_size <= kPack * kMergeThreads, "attention_merge: bad shape for a GPU: batch ",
               a.batch, ", a head size of ", a.head_size);
  const auto heads_per_block = static_cast<int>(kPack * kMergeThreads / a.head_size);
  const dim3 grid(static_cast<unsigned>(ceil_div(a.heads, heads_per_block)), blocks_for(a.tokens, 1, grid_limit(65535)),
                  static_cast<unsigned>(a.batch));
  launch("attention_merge", merge_kernel, grid, dim3(kMergeThreads), 0, stream, a, heads_per_block);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
