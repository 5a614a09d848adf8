#include "engine/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace isobar {

double Schedule::at(std::int64_t t) const {
  const double progress = static_cast<double>(t) / static_cast<double>(steps);
  const double shape = kind == ScheduleKind::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * progress)) : 1;
  if (warmup <= 0) return base * shape;
  return base * std::min(static_cast<double>(t + 1) / static_cast<double>(warmup), shape);
}

double scaled_rate(double lr, BatchScaling rule, std::int64_t batch, std::int64_t reference_batch) {
  const double ratio = static_cast<double>(batch) / static_cast<double>(reference_batch);
  switch (rule) {
    case BatchScaling::sqrt:
      return lr * std::sqrt(ratio);
    case BatchScaling::linear:
      return lr * ratio;
    case BatchScaling::none:
      break;
  }
  return lr;
}

}  // namespace isobar
