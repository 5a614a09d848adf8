// attention_merge - attention over two sets of keys, from the attention over each of them
//
//   l = lse[b,h,i],  l' = other_lse[b,h,i];   L = log(e^l + e^l')
//   o[b,i,h,:] = e^(l-L)·o[b,i,h,:] + e^(l'-L)·other_o[b,i,h,:];   lse[b,h,i] = L
//
//   A softmax over all keys weighs each set by its part of the sum of exponentials (online softmax: Milakov and
//   Gimelshein 2018; ring attention: Liu et al. 2023). Merging any number of sets, one after the other, gives the o and
//   the lse of kernels/attention/attention.h over all of them. Dropout changes nothing here, since lse is that of the
//   probabilities before dropout.
//
//   o, other_o      [B, T, NH, HS]    dtype: fp32, fp64 (CPU): accumulator_of(the operands of attention)
//     token t of sample b starts at pointer + (b·T + t)·stride elements; head h at + h·HS
//   lse, other_lse  [B, NH, T]        dtype, natural logarithm
//   o and lse are read and written
//
//   empty sets      lse = -inf: no keys. Such a set has no weight, and its o is not read. If both sets are empty: L =
//                   -inf and o = 0
//   numerics        weights are e^(l-m) / (e^(l-m) + e^(l'-m)) with m = max(l, l'), so that nothing overflows; an lse
//                   of NaN or +inf makes o and lse NaN
//   deterministic   yes
//   limits          HS and strides are multiples of 4, o and other_o 16-byte aligned; on CUDA B is at most 65535 and HS
//                   at most 512
//   aliasing        none
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

struct AttentionMergeArgs {
  std::int64_t batch = 0, heads = 0, tokens = 0, head_size = 0;
  DType dtype = DType::fp32;
  void* o = nullptr;
  void* lse = nullptr;
  const void* other_o = nullptr;
  const void* other_lse = nullptr;
  std::int64_t o_stride = 0, other_stride = 0;  // elements between tokens
};

// Throws an Error if the arguments break a limit that both implementations have.
void check_attention_merge(const AttentionMergeArgs& a);

constexpr Cost attention_merge_cost(const AttentionMergeArgs& a) {
  const double rows = static_cast<double>(a.batch) * a.heads * a.tokens;
  return {.bytes = rows * (3.0 * a.head_size + 3) * size_of(a.dtype), .flops = rows * (3.0 * a.head_size + 10)};
}

ISOBAR_KERNEL(attention_merge, AttentionMergeArgs)

}  // namespace isobar
