// The cases of layernorm_fwd and layernorm_bwd. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/layernorm.h"

namespace isobar::cases {

inline LayernormFwdArgs layernorm_fwd(LayernormFwdArgs a, Operands&& operands) {
  const std::int64_t n = a.rows * a.cols;
  const DType acc = accumulator_of(a.stream_dtype);
  a.x = operands.input("x", n, a.stream_dtype);
  a.branch = operands.optional_input("branch", n, a.dtype);
  a.weight = operands.input("weight", a.cols, acc);
  a.bias = operands.input("bias", a.cols, acc);
  a.sum = operands.optional_output("sum", n, a.stream_dtype);
  a.y = operands.output("y", n, a.dtype);
  a.mean = operands.output("mean", a.rows, acc);
  a.rstd = operands.output("rstd", a.rows, acc);
  return operands.complete(a);
}

inline LayernormBwdArgs layernorm_bwd(LayernormBwdArgs a, Operands&& operands) {
  const std::int64_t n = a.rows * a.cols;
  const DType acc = accumulator_of(a.stream_dtype);
  a.dy = operands.input("dy", n, a.dtype);
  a.x = operands.input("x", n, a.stream_dtype);
  a.weight = operands.input("weight", a.cols, acc);
  a.mean = operands.input("mean", a.rows, acc, {-0.1, 0.1});
  a.rstd = operands.input("rstd", a.rows, acc, {1, 2});
  a.dsum = operands.optional_input("dsum", n, a.stream_dtype);
  a.dx = operands.output("dx", n, a.stream_dtype);
  a.dbranch = operands.optional_output("dbranch", n, a.dtype);
  a.dweight = operands.gradient("dweight", a.cols, acc, a.mode);
  a.dbias = operands.gradient("dbias", a.cols, acc, a.mode);
  a.workspace = operands.workspace(layernorm_bwd_workspace(a.cols, a.stream_dtype));
  return operands.complete(a);
}

}  // namespace isobar::cases
