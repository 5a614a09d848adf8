// The case of adam. See kernels/cases/operands.h.
#pragma once

#include "kernels/adam.h"
#include "kernels/cases/operands.h"

namespace isobar::cases {

inline AdamArgs adam(AdamArgs a, Operands&& operands) {
  a.grad_scale = operands.input("grad_scale", 1, DType::fp64, {1, 1});
  a.grad = operands.input("grad", a.n, a.dtype);
  a.weight = operands.in_out("weight", a.n, a.dtype);
  a.m = operands.in_out("m", a.n, a.dtype);
  a.v = operands.in_out("v", a.n, a.dtype, {0, 1});
  a.compute = operands.optional_output("compute", a.n, a.compute_dtype);
  a.average = operands.optional_in_out("average", a.n, a.dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
