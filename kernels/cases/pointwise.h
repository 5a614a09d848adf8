// The cases of pointwise_fwd and pointwise_bwd. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/pointwise.h"

namespace isobar::cases {

inline PointwiseFwdArgs pointwise_fwd(PointwiseFwdArgs a, Operands&& operands) {
  a.x = operands.input("x", a.n, a.dtype, {-3, 3});
  a.y = operands.output("y", a.n, a.dtype);
  return operands.complete(a);
}

inline PointwiseBwdArgs pointwise_bwd(PointwiseBwdArgs a, Operands&& operands) {
  a.dy = operands.input("dy", a.n, a.dtype);
  a.y = operands.input("y", a.n, a.dtype);
  a.dx = operands.output("dx", a.n, a.dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
