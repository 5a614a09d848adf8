// Attention on a GPU: checks of arguments, and the kernels for the head's size.
#include "kernels/attention/heads.cuh"
#include "kernels/common/check.h"
#include "kernels/cuda/capability.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

// Checks beyond those of both implementations.
void check_for_cuda(const char* kernel, const AttentionShape& s, const AttentionWindow& w, DType dtype) {
  constexpr std::int64_t kMax = 1 << 29;
  ISOBAR_CHECK(s.batch <= 65535 && s.heads <= 65535 && w.queries.total <= kMax && w.keys.total <= kMax, kernel,
               ": bad shape for a GPU: batch ", s.batch, ", ", s.heads, " heads, ", w.queries.total, " queries, ",
               w.keys.total, " keys");
  ISOBAR_CHECK(dtype == DType::fp32 || is_16_bit(dtype), kernel, ": a GPU has no ", name_of(dtype), " attention");
}

// Calls f with this GPU's kernels for the type and size of a head. Those for compute capability 9.0 know no intervals
// of keys.
template <class Arguments, class F>
void visit_head(const Arguments& a, const F& f) {
  const std::int64_t head_size = a.shape.head_size;
  attention::visit_operands(a.dtype, a.tf32, [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) == 2) {
      if (compute_capability() == 90 && !a.keys.are_limited()) return attention::visit_sm90_head_size<T>(head_size, f);
    }
    attention::visit_head_size<T>(head_size, f);
  });
}

}  // namespace

void attention_fwd(const AttentionFwdArgs& arguments, Stream stream) {
  const AttentionFwdArgs a = checked_attention(arguments);
  check_for_cuda("attention_fwd", a.shape, a.window, a.dtype);
  visit_head(a, [&](auto head) { head.forward(a, stream); });
}

void attention_bwd(const AttentionBwdArgs& arguments, Stream stream) {
  const AttentionBwdArgs a = checked_attention(arguments);
  check_for_cuda("attention_bwd", a.shape, a.window, a.dtype);
  attention::launch_delta(a, stream);
  visit_head(a, [&](auto head) { head.backward(a, stream); });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
