// The cases of forecast_loss_sums, forecast_loss_finish and forecast_loss_bwd. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/forecast_loss.h"

namespace isobar::cases {

inline constexpr Range kWeights = {0, 2}, kTargets = {-2, 2};
inline constexpr Range kSums = {1, 2};  // E, T, W and M: no loss is 0 or infinite

inline ForecastLossSumsArgs forecast_loss_sums(ForecastLossSumsArgs a, Operands&& operands) {
  const std::int64_t n = a.batch * a.channels * a.height * a.width;
  const DType acc = accumulator_of(a.dtype);
  a.pred = operands.input("pred", n, a.dtype);
  a.target = operands.input("target", n, acc, kTargets);
  a.row_weights = operands.optional_input("row_weights", a.height, acc, kWeights);
  a.channel_weights = operands.optional_input("channel_weights", a.channels, acc, kWeights);
  a.sums = operands.output("sums", forecast_loss_sums_of(a.masked) * a.batch, DType::fp64);
  a.workspace = operands.workspace(forecast_loss_workspace(a.batch, a.masked));
  return operands.complete(a);
}

inline ForecastLossFinishArgs forecast_loss_finish(ForecastLossFinishArgs a, Operands&& operands) {
  a.sums = operands.input("sums", forecast_loss_sums_of(a.masked) * a.batch, DType::fp64, kSums);
  a.loss = operands.output("loss", 1, accumulator_of(a.dtype));
  return operands.complete(a);
}

inline ForecastLossBwdArgs forecast_loss_bwd(ForecastLossBwdArgs a, Operands&& operands) {
  const std::int64_t n = a.batch * a.channels * a.height * a.width;
  const DType acc = accumulator_of(a.dtype);
  a.pred = operands.input("pred", n, a.dtype);
  a.target = operands.input("target", n, acc, kTargets);
  a.row_weights = operands.optional_input("row_weights", a.height, acc, kWeights);
  a.channel_weights = operands.optional_input("channel_weights", a.channels, acc, kWeights);
  a.sums = operands.input("sums", forecast_loss_sums_of(a.masked) * a.batch, DType::fp64, kSums);
  a.upstream = operands.optional_input("upstream", 1, acc, {1, 1});
  a.dpred = operands.output("dpred", n, a.dpred_dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
