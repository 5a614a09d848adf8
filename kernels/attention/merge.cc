// The checks of arguments that both implementations of attention_merge make.
#include "kernels/attention/merge.h"

#include "kernels/common/check.h"

namespace isobar {

void check_attention_merge(const AttentionMergeArgs& a) {
  ISOBAR_CHECK(a.dtype == DType::fp32 || a.dtype == DType::fp64,
               "attention_merge: outputs are merged in fp32 or fp64, ", "the accumulator's type, not in ",
               name_of(a.dtype));
  ISOBAR_CHECK(a.batch >= 1 && a.heads >= 1 && a.tokens >= 1 && a.head_size >= 4 && a.head_size % 4 == 0,
               "attention_merge: bad shape: batch ", a.batch, ", ", a.heads, " heads of ", a.head_size, ", ", a.tokens,
               " tokens");
  ISOBAR_CHECK(a.o_stride % 4 == 0 && a.other_stride % 4 == 0, "attention_merge: the tokens are ", a.o_stride, " and ",
               a.other_stride, " elements apart, which must be multiples of 4");
}

}  // namespace isobar
