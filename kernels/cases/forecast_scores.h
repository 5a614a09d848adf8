// The case of forecast_scores. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/forecast_scores.h"

namespace isobar::cases {

inline ForecastScoresArgs forecast_scores(ForecastScoresArgs a, Operands&& operands) {
  const std::int64_t planes = a.batch * a.channels, pixels = a.height * a.width;
  const DType acc = accumulator_of(a.dtype);
  a.pred = operands.input("pred", planes * pixels, a.dtype);
  a.target = operands.input("target", planes * pixels, acc, {-2, 2});
  a.row_weights = operands.input("row_weights", a.height, acc, {0, 2});
  a.climatology = operands.optional_input("climatology", a.channels * pixels, acc);
  a.out = operands.output("out", forecast_scores_of(a.masked) * planes, DType::fp64);
  return operands.complete(a);
}

}  // namespace isobar::cases
