// The checks of arguments that both implementations of attention make.
#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "kernels/common/check.h"

namespace isobar {
namespace {

void check_shape(const char* kernel, const AttentionShape& s) {
  ISOBAR_CHECK(s.head_size % 8 == 0 && s.head_size >= 8 && s.head_size <= 128, kernel, ": a head size of ", s.head_size,
               " is not a multiple of 8 up to 128");
  ISOBAR_CHECK(s.batch >= 1 && s.heads >= 1 && s.q_tokens >= 1 && s.kv_tokens >= 1, kernel, ": bad shape: batch ",
               s.batch, ", ", s.heads, " heads, ", s.q_tokens, " queries, ", s.kv_tokens, " keys");
}

void check_output(const char* kernel, const char* what, DType output, DType dtype) {
  ISOBAR_CHECK(output == dtype || output == accumulator_of(dtype), kernel, ": ", what, " of ", name_of(dtype),
               " operands can be in ", name_of(dtype), " or in ", name_of(accumulator_of(dtype)), ", not in ",
               name_of(output));
}

void check_scale(const char* kernel, double scale) {
  ISOBAR_CHECK(scale > 0 && std::isfinite(scale), kernel, ": a scale of ", scale, " is not positive and finite");
}

void check_strides(const char* kernel, std::initializer_list<std::int64_t> strides) {
  for (const std::int64_t stride : strides)
    ISOBAR_CHECK(stride % 8 == 0, kernel, ": the tokens of an operand are ", stride,
                 " elements apart, which must be a multiple of 8");
}

AttentionWindow checked(const char* kernel, const AttentionWindow& window, const AttentionShape& s) {
  return {.samples = checked_window(kernel, window.samples),
          .heads = checked_window(kernel, "heads", window.heads, s.heads),
          .queries = checked_window(kernel, "queries", window.queries, s.q_tokens),
          .keys = checked_window(kernel, "keys", window.keys, s.kv_tokens)};
}

}  // namespace

AttentionFwdArgs checked_attention(const AttentionFwdArgs& arguments) {
  AttentionFwdArgs a = arguments;
  check_shape("attention_fwd", a.shape);
  check_scale("attention_fwd", a.scale);
  check_strides("attention_fwd", {a.q_stride, a.k_stride, a.v_stride, a.o_stride});
  check_output("attention_fwd", "o", a.o_dtype, a.dtype);
  a.window = checked("attention_fwd", a.window, a.shape);
  return a;
}

double attention_share(const AttentionFwdArgs& a) {
  const AttentionShape& s = a.shape;
  const std::int64_t diagonal = attention_diagonal(a), first_key = a.window.keys.first;
  double causal = 0, seen = 0;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t i = 0; i < s.q_tokens; ++i) {
      const std::int64_t at = b * s.q_tokens + i, all = std::clamp<std::int64_t>(i + diagonal + 1, 0, s.kv_tokens);
      const std::int64_t begin = a.keys.begin != nullptr ? std::max<std::int64_t>(a.keys.begin[at] - first_key, 0) : 0;
      const std::int64_t end = a.keys.end != nullptr ? std::min(a.keys.end[at] - first_key, all) : all;
      causal += static_cast<double>(all);
      seen += static_cast<double>(std::max<std::int64_t>(end - begin, 0));
    }
  return causal > 0 ? seen / causal : 1;
}

AttentionBwdArgs checked_attention(const AttentionBwdArgs& arguments) {
  AttentionBwdArgs a = arguments;
  check_shape("attention_bwd", a.shape);
  check_scale("attention_bwd", a.scale);
  check_strides("attention_bwd",
                {a.q_stride, a.k_stride, a.v_stride, a.o_stride, a.do_stride, a.dq_stride, a.dk_stride, a.dv_stride});
  check_output("attention_bwd", "o", a.o_dtype, a.dtype);
  check_output("attention_bwd", "dq, dk and dv", a.grad_dtype, a.dtype);
  a.window = checked("attention_bwd", a.window, a.shape);
  return a;
}

}  // namespace isobar
