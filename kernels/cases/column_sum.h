// The case of column_sum. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/column_sum.h"

namespace isobar::cases {

inline ColumnSumArgs column_sum(ColumnSumArgs a, Operands&& operands) {
  a.x = operands.input("x", a.rows * a.cols, a.dtype);
  a.out = operands.gradient("out", a.cols, accumulator_of(a.dtype), a.mode);
  a.workspace = operands.workspace(column_sum_workspace(a.rows, a.cols, a.dtype));
  return operands.complete(a);
}

}  // namespace isobar::cases
