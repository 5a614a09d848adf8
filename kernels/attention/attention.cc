// What both implementations of attention ask of their arguments.
#include "kernels/attention/attention.h"

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

AttentionWindow checked(const char* kernel, const AttentionWindow& window, const AttentionShape& s) {
  return {.samples = checked_window(kernel, window.samples),
          .heads = checked_window(kernel, "heads", window.heads, s.heads),
          .queries = checked_window(kernel, "queries", window.queries, s.q_tokens),
          .keys = checked_window(kernel, "keys", window.keys, s.kv_tokens)};
}

}  // namespace

AttentionFwd checked_attention(const AttentionFwd& arguments) {
  AttentionFwd a = arguments;
  check_shape("attention_fwd", a.shape);
  check_output("attention_fwd", "o", a.o_dtype, a.dtype);
  a.dropout.window = checked("attention_fwd", a.dropout.window, a.shape);
  return a;
}

AttentionBwd checked_attention(const AttentionBwd& arguments) {
  AttentionBwd a = arguments;
  check_shape("attention_bwd", a.shape);
  check_output("attention_bwd", "o", a.o_dtype, a.dtype);
  check_output("attention_bwd", "dq, dk and dv", a.grad_dtype, a.dtype);
  a.dropout.window = checked("attention_bwd", a.dropout.window, a.shape);
  return a;
}

}  // namespace isobar
