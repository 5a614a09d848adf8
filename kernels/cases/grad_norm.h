// The cases of sum_of_squares and clip_coefficient. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/grad_norm.h"

namespace isobar::cases {

inline SumOfSquaresArgs sum_of_squares(SumOfSquaresArgs a, Operands&& operands) {
  a.x = operands.input("x", a.n, a.dtype);
  a.sum = operands.output("sum", 1, DType::fp64);
  a.workspace = operands.workspace(kSumOfSquaresBlocks * sizeof(double));
  return operands.complete(a);
}

inline ClipCoefficientArgs clip_coefficient(ClipCoefficientArgs a, Operands&& operands) {
  a.sums = operands.input("sums", a.count, DType::fp64, {1, 2});
  a.norm = operands.output("norm", 1, DType::fp64);
  a.grad_scale = operands.output("grad_scale", 1, DType::fp64);
  return operands.complete(a);
}

}  // namespace isobar::cases
