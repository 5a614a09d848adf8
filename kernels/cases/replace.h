// The case of replace. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/replace.h"

namespace isobar::cases {

inline ReplaceArgs replace(ReplaceArgs a, Operands&& operands) {
  a.x = operands.input("x", a.groups * a.n, a.dtype);
  a.with = operands.optional_input("with", a.with_row ? a.n : a.groups * a.n, a.dtype);
  a.flags = operands.input("flags", a.n, DType::i32, {0, 1});
  a.y = operands.output("y", a.groups * a.n, a.dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
