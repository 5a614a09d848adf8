#include "data/fields/longitude.h"

#include <cmath>
#include <cstddef>

namespace isobar {

bool go_round(std::span<const double> longitudes) {
  constexpr double kCircle = 360, kSameStep = 1e-3;  // files may hold fp32
  const std::size_t n = longitudes.size();
  if (n < 2) return false;
  const double step = kCircle / static_cast<double>(n);
  const auto steps_by = [&](double wanted) {
    for (std::size_t i = 0; i < n; ++i) {
      const double apart = longitudes[(i + 1) % n] - longitudes[i] - wanted;
      if (!(std::abs(std::remainder(apart, kCircle)) <= kSameStep * step)) return false;  // NaN too
    }
    return true;
  };
  return steps_by(step) || steps_by(-step);
}

}  // namespace isobar
