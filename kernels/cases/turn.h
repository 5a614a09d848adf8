// The case of turn. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/turn.h"

namespace isobar::cases {

inline TurnArgs turn(TurnArgs a, Operands&& operands) {
  const std::int64_t n = a.batch * a.channels * a.extent[0] * a.extent[1] * a.extent[2];
  a.x = operands.input("x", n, DType::fp32);
  a.turns = operands.optional_input("turns", a.batch, DType::i32, {0, 47});
  a.y = operands.output("y", n, a.dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
