// attention - scaled dot-product attention without stored scores (Dao et al. 2022, 2023: FlashAttention)
//
//   fwd   S = scale·Q·Kᵀ;  P = softmax(S) over keys;  O = dropout(P)·V;   lse[b,h,i] = log Σ_j exp(S_ij)
//   bwd   from dO, with delta[b,h,i] = Σ_c dO·O:
//         P = exp(S - lse);  dP = dropout'(dO·Vᵀ);  dS = P∘(dP - delta);
//         dV = dropout(P)ᵀ·dO;  dQ = scale·dS·K;  dK = scale·dSᵀ·Q
//
//   q, o, dO, dq  [B, Tq, NH, HS]    k, v, dk, dv  [B, Tk, NH, HS]    dtype: fp32, bf16, fp16, fp64 (CPU)
//     token t of batch b starts at pointer + (b·T + t)·stride elements; head h at + h·HS. Strides let q, k and v lie
//     interleaved in one [B, T, 3, NH, HS] buffer. Every stride is a multiple of 8, pointers are 16-byte aligned
//   lse           [B, NH, Tq]        accumulator_of(dtype), natural logarithm: partial results over split keys can be
//                                    merged
//   workspace     (bwd) attention_bwd_workspace(...) bytes, contents undefined before and after
//
//   numerics      scores, softmax and accumulators in fp32 (fp64 for fp64). With 16-bit dtypes P and dS are rounded to
//                 dtype before they enter a product, as tensor cores and AMX need it (else the CPU does not)
//   dropout       element (b, h, i, j) of P is dropped when random_bits(seed, stream, ((b·NH + h)·Tq + i)·Tk + j) is
//                 below drop_threshold(p); what is kept is scaled by 1/(1 - p). lse is that of the undropped P
//   deterministic yes: no atomics; dq on the CPU for a fixed number of threads
//   limits        scale > 0; HS a multiple of 8, 8 <= HS <= 128; B, NH, Tq, Tk >= 1, no multiple of anything; on CUDA
//                 B and NH at most 65535
//   aliasing      none
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/device.h"
#include "kernels/common/dtype.h"

namespace isobar {

struct AttentionShape {
  std::int64_t batch = 0, heads = 0, q_tokens = 0, kv_tokens = 0, head_size = 0;
};

struct AttentionDropout {
  float p = 0;  // 0: no dropout
  std::uint64_t seed = 0, stream = 0;
};

struct AttentionFwd {
  AttentionShape shape;
  DType dtype = DType::fp32;
  double scale = 1;
  AttentionDropout dropout;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  void* lse = nullptr;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0;  // elements between tokens
};

struct AttentionBwd {
  AttentionShape shape;
  DType dtype = DType::fp32;
  double scale = 1;
  AttentionDropout dropout;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* o = nullptr;
  const void* lse = nullptr;
  const void* d_o = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0, do_stride = 0;
  std::int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;
  void* workspace = nullptr;
};

// Room for delta, [B, NH, Tq] in the accumulator's type. What an implementation needs per thread it keeps itself.
constexpr std::size_t attention_bwd_workspace(const AttentionShape& s, DType dtype) {
  return static_cast<std::size_t>(s.batch * s.heads * s.q_tokens) * size_of(accumulator_of(dtype));
}
constexpr Cost attention_fwd_cost(const AttentionFwd& a) {
  const double q = static_cast<double>(a.shape.batch) * a.shape.heads * a.shape.q_tokens;
  const double kv = static_cast<double>(a.shape.batch) * a.shape.heads * a.shape.kv_tokens;
  const double h = a.shape.head_size;
  return {.bytes = (2 * q + 2 * kv) * h * size_of(a.dtype) + 4 * q, .flops = 4 * q * a.shape.kv_tokens * h};
}
constexpr Cost attention_bwd_cost(const AttentionBwd& a) {
  const double q = static_cast<double>(a.shape.batch) * a.shape.heads * a.shape.q_tokens;
  const double kv = static_cast<double>(a.shape.batch) * a.shape.heads * a.shape.kv_tokens;
  const double h = a.shape.head_size;
  return {.bytes = (4 * q + 4 * kv) * h * size_of(a.dtype) + 4 * q, .flops = 10 * q * a.shape.kv_tokens * h};
}

ISOBAR_KERNEL(attention_fwd, AttentionFwd)
ISOBAR_KERNEL(attention_bwd, AttentionBwd)

}  // namespace isobar
