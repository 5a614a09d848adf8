#include "kernels/attention/merge.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

constexpr double kEmpty = -__builtin_inf();  // the log-sum-exp of an empty set of keys

// The weights of the two sets in a row, and their common log-sum-exp.
struct Merged {
  double weight, other_weight, lse;
};
Merged merge(double lse, double other_lse) {
  const double max_lse = lse < other_lse ? other_lse : lse;
  if (max_lse == kEmpty && other_lse == kEmpty) return {0, 0, kEmpty};
  const double own = __builtin_exp(lse - max_lse), other = __builtin_exp(other_lse - max_lse), sum = own + other;
  return {own / sum, other / sum, max_lse + __builtin_log(sum)};
}

// A row o of head_size elements; a set without keys may hold any values.
template <class T>
void merge_row(const Merged& merged, bool is_empty, bool other_is_empty, std::int64_t head_size, const T* other, T* o) {
  const T weight = static_cast<T>(merged.weight), other_weight = static_cast<T>(merged.other_weight);
  if (is_empty && other_is_empty)
    for (std::int64_t c = 0; c < head_size; ++c) o[c] = T{0};
  else if (is_empty)
    for (std::int64_t c = 0; c < head_size; ++c) o[c] = other[c] * other_weight;
  else if (!other_is_empty)
    for (std::int64_t c = 0; c < head_size; ++c) o[c] = o[c] * weight + other[c] * other_weight;
}

template <class T>
void merge_all(const AttentionMergeArgs& a) {
  const std::int64_t rows = a.batch * a.tokens * a.heads;  // [B, T, NH]
  parallel_for(rows, ceil_div(kGrain / 4, a.head_size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t token = row / a.heads, head = row % a.heads;
      const std::int64_t at = (token / a.tokens * a.heads + head) * a.tokens + token % a.tokens;
      T* lse = static_cast<T*>(a.lse) + at;
      const T other_lse = static_cast<const T*>(a.other_lse)[at];
      const Merged merged = merge(*lse, other_lse);
      merge_row(merged, *lse == static_cast<T>(kEmpty), other_lse == static_cast<T>(kEmpty), a.head_size,
                static_cast<const T*>(a.other_o) + token * a.other_stride + head * a.head_size,
                static_cast<T*>(a.o) + token * a.o_stride + head * a.head_size);
      *lse = static_cast<T>(merged.lse);
    }
  });
}

}  // namespace

void attention_merge(const AttentionMergeArgs& a) {
  check_attention_merge(a);
  visit_accumulator(a.dtype, [&]<class T>(Type<T>) { merge_all<T>(a); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(attention_merge, AttentionMergeArgs)
