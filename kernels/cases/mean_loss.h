// The cases of mean_loss_sums, mean_loss_finish and mean_loss_bwd. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/mean_loss.h"

namespace isobar::cases {

inline MeanLossSumsArgs mean_loss_sums(MeanLossSumsArgs a, Operands&& operands) {
  a.pred = operands.input("pred", a.points * a.pred_stride, a.dtype);
  a.target = operands.input("target", a.points * a.target_stride, accumulator_of(a.dtype));
  a.sums = operands.output("sums", a.channels + 1, DType::fp64);
  a.workspace = operands.workspace(mean_loss_workspace(a.channels));
  return operands.complete(a);
}

inline MeanLossFinishArgs mean_loss_finish(MeanLossFinishArgs a, Operands&& operands) {
  a.sums = operands.input("sums", a.channels + 1, DType::fp64, {0, 1});
  a.loss = operands.output("loss", 1, accumulator_of(a.dtype));
  return operands.complete(a);
}

inline MeanLossBwdArgs mean_loss_bwd(MeanLossBwdArgs a, Operands&& operands) {
  const std::int64_t n = a.points * a.channels;
  const DType accumulator = accumulator_of(a.dtype);
  a.pred = operands.input("pred", n, a.dtype);
  a.target = operands.input("target", n, accumulator);
  a.upstream = operands.optional_input("upstream", 1, accumulator, {1, 1});
  a.dpred = operands.output("dpred", n, a.dpred_dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
