// The cases of attention_fwd, attention_bwd, attention_merge and attention_cached. See kernels/cases/operands.h.
// more_stream of dropout counts as an option, which the caller sets.
#pragma once

#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/attention/cached.h"
#include "kernels/attention/merge.h"
#include "kernels/cases/operands.h"

namespace isobar::cases {

// As models scale the scores.
inline double attention_scale(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<double>(shape.head_size));
}

// Elements between the tokens of operands without gaps.
inline std::int64_t attention_stride(const AttentionShape& shape) {
  return shape.heads * shape.head_size;
}

// Tokens of an operand whose stride is not given have no gaps between them.
template <class... Strides>
void fill_strides(const AttentionShape& shape, Strides&... strides) {
  ((strides = strides == 0 ? attention_stride(shape) : strides), ...);
}

// The intervals of keys, of a case that has them.
inline AttentionKeys attention_keys(const AttentionShape& s, Operands& operands) {
  const auto keys = static_cast<double>(s.kv_tokens);
  return {operands.optional_input("key_begin", s.batch * s.q_tokens, DType::i32, {0, 0}),
          operands.optional_input("key_end", s.batch * s.q_tokens, DType::i32, {keys, keys})};
}

inline AttentionFwdArgs attention_fwd(AttentionFwdArgs a, Operands&& operands) {
  const AttentionShape& s = a.shape;
  fill_strides(s, a.q_stride, a.k_stride, a.v_stride, a.o_stride);
  const std::int64_t queries = s.batch * s.q_tokens, keys = s.batch * s.kv_tokens;
  a.q = operands.input("q", queries * a.q_stride, a.dtype);
  a.k = operands.input("k", keys * a.k_stride, a.dtype);
  a.v = operands.input("v", keys * a.v_stride, a.dtype);
  a.o = operands.output("o", queries * a.o_stride, a.o_dtype);
  a.lse = operands.output("lse", queries * s.heads, accumulator_of(a.dtype));
  a.keys = attention_keys(s, operands);
  return operands.complete(a);
}

inline AttentionBwdArgs attention_bwd(AttentionBwdArgs a, Operands&& operands) {
  const AttentionShape& s = a.shape;
  fill_strides(s, a.q_stride, a.k_stride, a.v_stride, a.o_stride);
  fill_strides(s, a.do_stride, a.dq_stride, a.dk_stride, a.dv_stride);
  const std::int64_t queries = s.batch * s.q_tokens, keys = s.batch * s.kv_tokens;
  a.q = operands.input("q", queries * a.q_stride, a.dtype);
  a.k = operands.input("k", keys * a.k_stride, a.dtype);
  a.v = operands.input("v", keys * a.v_stride, a.dtype);
  a.o = operands.input("o", queries * a.o_stride, a.o_dtype);
  a.lse = operands.input("lse", queries * s.heads, accumulator_of(a.dtype));
  a.d_o = operands.input("d_o", queries * a.do_stride, a.dtype);
  a.dq = operands.gradient("dq", queries * a.dq_stride, a.grad_dtype, a.dq_mode);
  a.dk = operands.gradient("dk", keys * a.dk_stride, a.grad_dtype, a.dkv_mode);
  a.dv = operands.gradient("dv", keys * a.dv_stride, a.grad_dtype, a.dkv_mode);
  a.workspace = operands.workspace(attention_bwd_workspace(s, a.dtype));
  a.keys = attention_keys(s, operands);
  return operands.complete(a);
}

inline AttentionMergeArgs attention_merge(AttentionMergeArgs a, Operands&& operands) {
  fill_strides({.heads = a.heads, .head_size = a.head_size}, a.o_stride, a.other_stride);
  const std::int64_t tokens = a.batch * a.tokens;
  a.o = operands.in_out("o", tokens * a.o_stride, a.dtype);
  a.lse = operands.in_out("lse", tokens * a.heads, a.dtype);
  a.other_o = operands.input("other_o", tokens * a.other_stride, a.dtype);
  a.other_lse = operands.input("other_lse", tokens * a.heads, a.dtype);
  return operands.complete(a);
}

inline AttentionCachedArgs attention_cached(AttentionCachedArgs a, Operands&& operands) {
  fill_strides({.heads = a.heads, .head_size = a.head_size}, a.q_stride, a.k_stride, a.v_stride, a.o_stride);
  const std::int64_t kept = a.batch * a.capacity * a.heads * a.head_size;
  a.position = operands.input("position", a.batch, DType::i32, {0, static_cast<double>(a.capacity)});
  a.q = operands.input("q", a.batch * a.q_stride, a.dtype);
  a.k = operands.input("k", a.batch * a.k_stride, a.dtype);
  a.v = operands.input("v", a.batch * a.v_stride, a.dtype);
  a.keys = operands.in_out("keys", kept, a.dtype);
  a.values = operands.in_out("values", kept, a.dtype);
  a.o = operands.output("o", a.batch * a.o_stride, a.dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
