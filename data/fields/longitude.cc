#include "data/fields/longitude.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace isobar {

bool go_round(std::span<const double> longitudes) {
  // Files may hold fp32, or degrees that were printed with two digits: each then errs by at most 0.005. A part of the
  // globe has at least one step that is wrong by a whole step, the one from its last column to its first.
  constexpr double kCircle = 360, kSameStep = 1e-2, kTwoDigits = 0.0101, kLargestError = 0.1;
  const std::size_t n = longitudes.size();
  if (n < 2) return false;
  const double step = kCircle / static_cast<double>(n);
  const double tolerance = std::min(std::max(kSameStep * step, kTwoDigits), kLargestError * step);
  const auto steps_by = [&](double wanted) {
    for (std::size_t i = 0; i < n; ++i) {
      const double apart = longitudes[(i + 1) % n] - longitudes[i] - wanted;
      if (!(std::abs(std::remainder(apart, kCircle)) <= tolerance)) return false;  // NaN too
    }
    return true;
  };
  return steps_by(step) || steps_by(-step);
}

}  // namespace isobar
