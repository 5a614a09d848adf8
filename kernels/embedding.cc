#include "kernels/embedding.h"

#include "kernels/common/check.h"

namespace isobar {

void check_embedding(const EmbeddingFwdArgs& a) {
  ISOBAR_CHECK(a.y_dtype == a.dtype || (a.y_dtype == DType::fp32 && is_16_bit(a.dtype)), "embedding_fwd: rows of ",
               name_of(a.dtype), " cannot be given as ", name_of(a.y_dtype));
}

}  // namespace isobar
