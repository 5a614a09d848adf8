// The case of gemm. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/gemm/gemm.h"

namespace isobar::cases {

inline GemmArgs gemm(GemmArgs g, Operands&& operands) {
  g.a = operands.input("a", g.m * g.k, g.in_dtype);
  g.b = operands.input("b", g.k * g.n, g.in_dtype);
  g.bias = operands.optional_input("bias", g.n, g.bias_dtype);
  g.c = operands.gradient("c", g.m * g.n, g.out_dtype, g.mode);
  g.pre = operands.optional_output("pre", g.m * g.n, g.out_dtype);
  g.a_sums = operands.optional_output("a_sums", g.m, accumulator_of(g.in_dtype));
  return operands.complete(g);
}

}  // namespace isobar::cases
