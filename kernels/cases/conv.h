// The cases of conv_fwd, conv_bwd_data and conv_bwd_weight. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/conv/conv.h"

namespace isobar::cases {

inline ConvFwdArgs conv_fwd(ConvFwdArgs a, Operands&& operands) {
  a.x = operands.input("x", a.shape.x(), a.dtype);
  a.weight = operands.input("weight", a.shape.weight(), a.dtype);
  a.bias = operands.optional_input("bias", a.shape.out_channels, accumulator_of(a.dtype));
  a.y = operands.output("y", a.shape.y(), a.out_dtype);
  a.workspace = operands.workspace(conv_fwd_workspace(a));
  return operands.complete(a);
}

inline ConvBwdDataArgs conv_bwd_data(ConvBwdDataArgs a, Operands&& operands) {
  a.dy = operands.input("dy", a.shape.y(), a.dtype);
  a.weight = operands.input("weight", a.shape.weight(), a.dtype);
  a.bias = operands.optional_input("bias", a.shape.in_channels, accumulator_of(a.dtype));
  a.dx = operands.gradient("dx", a.shape.x(), a.out_dtype, a.mode);
  a.workspace = operands.workspace(conv_bwd_data_workspace(a));
  return operands.complete(a);
}

inline ConvBwdWeightArgs conv_bwd_weight(ConvBwdWeightArgs a, Operands&& operands) {
  a.x = operands.input("x", a.shape.x(), a.dtype);
  a.dy = operands.input("dy", a.shape.y(), a.dtype);
  a.dweight = operands.gradient("dweight", a.shape.weight(), accumulator_of(a.dtype), a.mode);
  a.workspace = operands.workspace(conv_bwd_weight_workspace(a));
  return operands.complete(a);
}

}  // namespace isobar::cases
