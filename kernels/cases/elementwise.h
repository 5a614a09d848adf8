// The cases of cast, fill, add and add_row. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/elementwise.h"

namespace isobar::cases {

inline CastArgs cast(CastArgs a, Operands&& operands) {
  a.x = operands.input("x", a.n, a.x_dtype);
  a.y = operands.output("y", a.n, a.y_dtype);
  return operands.complete(a);
}

inline FillArgs fill(FillArgs a, Operands&& operands) {
  a.y = operands.output("y", a.n, a.dtype);
  return operands.complete(a);
}

inline AddArgs add(AddArgs args, Operands&& operands) {
  args.a = operands.input("a", args.n, args.a_dtype);
  args.b = operands.input("b", args.n, args.b_dtype);
  args.y = operands.output("y", args.n, args.y_dtype);
  return operands.complete(args);
}

inline AddRowArgs add_row(AddRowArgs a, Operands&& operands) {
  a.x = operands.input("x", a.groups * a.n, a.x_dtype);
  a.row = operands.input("row", a.n, a.row_dtype);
  a.y = operands.output("y", a.groups * a.n, a.y_dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
