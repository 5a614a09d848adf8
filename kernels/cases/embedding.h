// The cases of embedding_fwd and embedding_bwd. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/embedding.h"

namespace isobar::cases {

inline EmbeddingFwdArgs embedding_fwd(EmbeddingFwdArgs a, Operands&& operands) {
  a.ids = operands.input("ids", a.ids_count, DType::i32, {0, static_cast<double>(a.rows)});
  a.table = operands.input("table", a.rows * a.cols, a.dtype);
  a.y = operands.output("y", a.ids_count * a.cols, a.y_dtype);
  return operands.complete(a);
}

inline EmbeddingBwdArgs embedding_bwd(EmbeddingBwdArgs a, Operands&& operands) {
  a.ids = operands.input("ids", a.ids_count, DType::i32, {0, static_cast<double>(a.rows)});
  a.dy = operands.input("dy", a.ids_count * a.cols, a.y_dtype);
  a.dtable = operands.gradient("dtable", a.rows * a.cols, accumulator_of(a.y_dtype), a.mode);
  return operands.complete(a);
}

}  // namespace isobar::cases
