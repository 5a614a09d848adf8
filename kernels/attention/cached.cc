// The checks of arguments that both implementations of attention_cached make.
#include "kernels/attention/cached.h"

#include <cmath>

#include "kernels/common/check.h"

namespace isobar {

void check_attention_cached(const AttentionCachedArgs& a) {
  ISOBAR_CHECK(a.batch >= 1 && a.heads >= 1 && a.capacity >= 1, "attention_cached: bad shape: batch ", a.batch, ", ",
               a.heads, " heads, room for ", a.capacity, " tokens");
  ISOBAR_CHECK(a.head_size >= 8 && a.head_size <= 128 && a.head_size % 8 == 0,
               "attention_cached: the head size must be a multiple of 8 up to 128, not ", a.head_size);
  ISOBAR_CHECK(a.scale > 0 && std::isfinite(a.scale), "attention_cached: the scale must be above 0 and finite, not ",
               a.scale);
}

void check_cached_positions(const AttentionCachedArgs& a) {
  for (std::int64_t b = 0; b < a.batch; ++b)
    ISOBAR_CHECK(a.position[b] < a.capacity, "attention_cached: sample ", b, " is at position ", a.position[b],
                 ", beyond the room for ", a.capacity, " tokens");
}

}  // namespace isobar
