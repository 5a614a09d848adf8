#include "data/fields/spread_steps.h"

#include <algorithm>
#include <cmath>

namespace isobar {

std::vector<std::int64_t> spread_steps(std::int64_t first, std::int64_t end, std::int64_t count,
                                       std::int64_t steps_per_day) {
  std::vector<std::int64_t> steps;
  const std::int64_t all = end - first;
  if (all <= count) {
    for (std::int64_t step = first; step < end; ++step) steps.push_back(step);
    return steps;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t place = i * all / count;
    if (steps_per_day > 1 && all / count >= steps_per_day)
      place += ((i - place) % steps_per_day + steps_per_day) % steps_per_day;
    steps.push_back(first + std::min(place, all - 1));
  }
  return steps;
}

std::int64_t steps_per_day(const FieldSeries& series) {
  const double hours = series.labels().step_hours;
  if (hours <= 0) return 0;
  const double steps = 24 / hours;
  const auto whole = static_cast<std::int64_t>(std::llround(steps));
  return whole >= 1 && std::abs(steps - static_cast<double>(whole)) < 1e-6 * steps ? whole : 0;
}

}  // namespace isobar
