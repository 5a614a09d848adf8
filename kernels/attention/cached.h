// attention_cached - the attention of one new token of each sample, whose earlier keys and values are kept
//
//   p = position[b];  keys[b, p] = k[b];  values[b, p] = v[b]
//   s_j = scale·q[b,h]·keys[b,j,h],  0 <= j <= p;   o[b,h] = Σ_j softmax(s)_j·values[b,j,h]
//
//   q, k, v, o      [B, NH, HS]            dtype: fp32, bf16, fp16, fp64 (CPU)
//     sample b starts at pointer + b·stride elements; head h at + h·HS. With strides, q, k and v may be interleaved in
//     one [B, 3, NH, HS] buffer
//   keys, values    [B, capacity, NH, HS]  dtype; rows 0 ... p - 1 of a sample are read, row p is written, and what
//                   follows is not touched
//   position        [B]                    i32, below capacity. A sample of a position < 0 is left out: its o is 0, and
//                   nothing of it is read or written
//
//   numerics        scores, softmax and sums in fp32 (fp64 for fp64); o is rounded once
//   deterministic   yes: o of a sample does not depend on the other samples, nor on threads
//   limits          scale > 0 and finite; HS a multiple of 8, 8 <= HS <= 128; B, NH, capacity >= 1; on CUDA B and NH at
//                   most 65535
//   aliasing        none
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

struct AttentionCachedArgs {
  std::int64_t batch = 0, heads = 0, head_size = 0, capacity = 0;
  DType dtype = DType::fp32;
  double scale = 1;
  const std::int32_t* position = nullptr;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* keys = nullptr;
  void* values = nullptr;
  void* o = nullptr;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0;  // elements between samples
};

// Throws an Error if the arguments break a limit that both implementations have.
void check_attention_cached(const AttentionCachedArgs& a);
// Throws an Error if a position, which the host can read, is beyond the capacity.
void check_cached_positions(const AttentionCachedArgs& a);

// Of full caches: positions are known to the device alone.
constexpr Cost attention_cached_cost(const AttentionCachedArgs& a) {
  const double row = static_cast<double>(a.batch) * a.heads * a.head_size, pairs = row * a.capacity;
  return {.bytes = (2 * pairs + 4 * row) * size_of(a.dtype) + 4.0 * a.batch, .flops = 4 * pairs};
}

ISOBAR_KERNEL(attention_cached, AttentionCachedArgs)

}  // namespace isobar
