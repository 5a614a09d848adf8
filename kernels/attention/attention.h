// attention - scaled dot-product attention that does not store scores (Dao et al. 2022, 2023: FlashAttention)
//
//   fwd   S = scale·Q·Kᵀ;  P = softmax(S) over the keys a query sees;  O = dropout(P)·V;
//         lse[b,h,i] = log Σ_j exp(S_ij)
//   bwd   from dO, with delta[b,h,i] = Σ_c dO·O:
//         P = exp(S - lse);  dP = dropout'(dO·Vᵀ);  dS = P∘(dP - delta);
//         dV = dropout(P)ᵀ·dO;  dQ = scale·dS·K;  dK = scale·dSᵀ·Q
//
//   q, dO         [B, Tq, NH, HS]    k, v  [B, Tk, NH, HS]    dtype: fp32, bf16, fp16, fp64 (CPU)
//   o             [B, Tq, NH, HS]    o_dtype: dtype or accumulator_of(dtype)
//   dq            [B, Tq, NH, HS]    dk, dv  [B, Tk, NH, HS]    grad_dtype: dtype or accumulator_of(dtype)
//     token t of sample b starts at pointer + (b·T + t)·stride elements; head h at + h·HS. With strides, q, k and v may
//     be interleaved in one [B, T, 3, NH, HS] buffer. Every stride is a multiple of 8, pointers are 16-byte aligned
//   lse           [B, NH, Tq]        accumulator_of(dtype), natural logarithm
//   key_begin, key_end  [B, Tq]      i32, numbers of keys of the whole P (see window), or null
//   workspace     (bwd) attention_bwd_workspace(...) bytes, 16-byte aligned, contents undefined before and after
//
//   split keys    keys may come in parts, with one call for each (ring attention: Liu et al. 2023). Forward:
//                 attention_merge (kernels/attention/merge.h) makes one (o, lse) from those of the parts. Backward:
//                 with the merged o and lse, dk and dv of a part are final, and its dq is one term of a sum. Merged and
//                 summed values are in the accumulator's type, and rounded once, at the end
//   window        the position of the block in the whole P of the global batch. In the rules below b, h, i, j and NH,
//                 Tq, Tk are those of the whole P
//   causal        query i sees the keys j <= i; by default all. P of the others is 0; but NaN or infinity in their k
//                 and v may reach o and the gradients, as 0·NaN. A query that sees no key of the call: o = 0, lse =
//                 -inf, and it adds nothing to dq, dk and dv. A call whose keys all come after its queries does almost
//                 no work. If Tq and Tk differ and there is no window, query 0 sees only key 0, as with PyTorch's
//                 is_causal
//   keys          query i of sample b sees the keys key_begin[b,i] <= j < key_end[b,i] only, of those that `causal`
//                 leaves it; null: from the first one, to the last one. Neither decreases with i: the queries of a key
//                 are an interval too. Packed documents, lengths of samples and sliding windows are such
//                 intervals. Tiles outside are skipped. NaN in hidden keys as with causal. The cost model cannot look
//                 at them, on a GPU: their share says how many pairs they leave
//   tf32          lets a GPU round fp32 operands, P and dS to 10 mantissa bits before they enter a product, since its
//                 tensor cores need it. The rounding of q and k is then an error of the scores and of lse. The CPU and
//                 other dtypes ignore it
//   numerics      scores, softmax and accumulators in fp32 (fp64 for fp64). With 16-bit dtypes P and dS are rounded to
//                 dtype before they enter a product, since tensor cores, AMX and AVX512_BF16 need it; other CPU code
//                 does not round them. AVX512_BF16 takes bf16 operands and sums below 2^-126 for zero. If a gradient is
//                 added to, the sum is rounded
//   dropout       element (b, h, i, j) of P is dropped if random_bits(seed, stream, ((b·NH + h)·Tq + i)·Tk + j) is
//                 below drop_threshold(p); other elements are scaled by 1/(1 - p). lse is that of P before dropout
//   deterministic yes: no atomics; dq on the CPU for a fixed number of threads
//   limits        scale > 0 and finite; HS a multiple of 8, 8 <= HS <= 128; B, NH, Tq, Tk >= 1, of any size; strides as
//                 above; the block lies in the whole; on CUDA B and NH are at most 65535, and the whole has at most
//                 2^29 queries and keys
//   aliasing      none
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/grad.h"
#include "kernels/common/kernel.h"
#include "kernels/common/window.h"

namespace isobar {

struct AttentionShape {
  std::int64_t batch = 0, heads = 0, q_tokens = 0, kv_tokens = 0, head_size = 0;
};

// The position of a call's block of P in the whole P.
struct AttentionWindow {
  SampleWindow samples = {};
  Span heads = {}, queries = {}, keys = {};
};

// Of every query, the first key that it sees, and the first one after those. The check of their order is the caller's.
struct AttentionKeys {
  const std::int32_t* begin = nullptr;
  const std::int32_t* end = nullptr;
  double share = 1;  // of the pairs that `causal` leaves, those that the intervals leave; for the cost model alone

  constexpr bool are_limited() const { return begin != nullptr || end != nullptr; }
};

struct AttentionDropout {
  float p = 0;  // 0: no dropout
  std::uint64_t seed = 0, stream = 0;
  const std::uint64_t* stream_offset =
      nullptr;  // [1], on the device, or null: is added to stream (kernels/common/rng.h)
};

struct AttentionFwdArgs {
  AttentionShape shape;
  DType dtype = DType::fp32, o_dtype = dtype;
  double scale = 1;
  bool causal = false, tf32 = false;
  AttentionWindow window = {};
  AttentionDropout dropout;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  void* lse = nullptr;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0;  // elements between tokens
  AttentionKeys keys = {};
};

struct AttentionBwdArgs {
  AttentionShape shape;
  DType dtype = DType::fp32, o_dtype = dtype, grad_dtype = dtype;
  double scale = 1;
  bool causal = false, tf32 = false;
  AttentionWindow window = {};
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
  Grad dq_mode = Grad::overwrite, dkv_mode = Grad::overwrite;
  void* workspace = nullptr;
  AttentionKeys keys = {};
};

// Query i of the call sees its key j if j <= i + diagonal. The arguments must be checked.
template <class Attention>
ISOBAR_HD inline __attribute__((always_inline)) constexpr std::int64_t attention_diagonal(const Attention& a) {
  return a.causal ? a.window.queries.first - a.window.keys.first : a.shape.kv_tokens - 1;
}

// Queries of a head in the workspace: whole tiles of any kernel.
constexpr std::int64_t attention_padded_queries(std::int64_t q_tokens) {
  return (q_tokens + 127) / 128 * 128;
}
// Space for two numbers per padded query, [2, B, NH, Tq], in the accumulator's type. An implementation has its own
// memory per thread.
constexpr std::size_t attention_bwd_workspace(const AttentionShape& s, DType dtype) {
  return static_cast<std::size_t>(2 * s.batch * s.heads * attention_padded_queries(s.q_tokens)) *
         size_of(accumulator_of(dtype));
}
// The arguments with the totals of their window set. They throw an Error for a limit that both implementations have.
AttentionFwdArgs checked_attention(const AttentionFwdArgs& a);
AttentionBwdArgs checked_attention(const AttentionBwdArgs& a);

// The share of these keys, from limits that the host can read. 1 where `causal` leaves no pair.
double attention_share(const AttentionFwdArgs& a);

// The number of pairs of a query and a key that it sees.
template <class Attention>
constexpr double attention_pairs(const Attention& a) {
  const AttentionShape& s = a.shape;
  const std::int64_t diagonal = attention_diagonal(a);
  double pairs = 0;
  for (std::int64_t i = 0; i < s.q_tokens; ++i)
    pairs += static_cast<double>(std::clamp<std::int64_t>(i + diagonal + 1, 0, s.kv_tokens));
  return static_cast<double>(s.batch) * static_cast<double>(s.heads) * pairs * a.keys.share;
}
// Bytes of the limits, which are read once: their heads share them.
template <class Attention>
constexpr double attention_limit_bytes(const Attention& a) {
  const double limits = (a.keys.begin != nullptr ? 1 : 0) + (a.keys.end != nullptr ? 1 : 0);
  return limits * sizeof(std::int32_t) * static_cast<double>(a.shape.batch) * static_cast<double>(a.shape.q_tokens);
}
constexpr Cost attention_fwd_cost(const AttentionFwdArgs& a) {
  const double q = static_cast<double>(a.shape.batch) * a.shape.heads * a.shape.q_tokens;
  const double kv = static_cast<double>(a.shape.batch) * a.shape.heads * a.shape.kv_tokens;
  const double h = a.shape.head_size;
  return {.bytes = ((q + 2 * kv) * size_of(a.dtype) + q * size_of(a.o_dtype)) * h + 4 * q + attention_limit_bytes(a),
          .flops = 4 * attention_pairs(a) * h};
}
constexpr Cost attention_bwd_cost(const AttentionBwdArgs& a) {
  const double q = static_cast<double>(a.shape.batch) * a.shape.heads * a.shape.q_tokens;
  const double kv = static_cast<double>(a.shape.batch) * a.shape.heads * a.shape.kv_tokens;
  const double h = a.shape.head_size;
  const double dq = a.dq_mode == Grad::accumulate ? 2 * q : q, dkv = a.dkv_mode == Grad::accumulate ? 2 * kv : kv;
  return {
      .bytes =
          ((2 * q + 2 * kv) * size_of(a.dtype) + q * size_of(a.o_dtype) + (dq + 2 * dkv) * size_of(a.grad_dtype)) * h +
          4 * q + attention_limit_bytes(a),
      .flops = 10 * attention_pairs(a) * h};
}

ISOBAR_KERNEL(attention_fwd, AttentionFwdArgs)
ISOBAR_KERNEL(attention_bwd, AttentionBwdArgs)

}  // namespace isobar
