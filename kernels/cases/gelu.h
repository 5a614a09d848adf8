// The cases of gelu_fwd and gelu_bwd. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/gelu.h"

namespace isobar::cases {

inline constexpr Range kGeluInputs = {-3, 3};  // where it bends

inline GeluFwdArgs gelu_fwd(GeluFwdArgs a, Operands&& operands) {
  a.x = operands.input("x", a.n, a.dtype, kGeluInputs);
  a.y = operands.output("y", a.n, a.dtype);
  return operands.complete(a);
}

inline GeluBwdArgs gelu_bwd(GeluBwdArgs a, Operands&& operands) {
  a.dy = operands.input("dy", a.n, a.dtype);
  a.x = operands.input("x", a.n, a.dtype, kGeluInputs);
  a.dx = operands.output("dx", a.n, a.dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
