// The cases of dropout and drop_path. See kernels/cases/operands.h. more_stream counts as an option, which the
// caller sets.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/dropout.h"

namespace isobar::cases {

inline DropoutArgs dropout(DropoutArgs a, Operands&& operands) {
  a.x = operands.input("x", a.n, a.dtype);
  a.y = operands.output("y", a.n, a.dtype);
  return operands.complete(a);
}

inline DropPathArgs drop_path(DropPathArgs a, Operands&& operands) {
  a.x = operands.input("x", a.rows * a.cols, a.dtype);
  a.y = operands.output("y", a.rows * a.cols, a.dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
