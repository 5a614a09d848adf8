#include "bench/ladder/ladder.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace isobar {
namespace {

// |value - exact| / bound, infinite for NaN.
double part_of_bound(double value, const Expected& expected) {
  const double error = std::abs(value - expected.value);
  if (error == 0) return 0;
  return error <= std::numeric_limits<double>::max() ? error / expected.bound : std::numeric_limits<double>::infinity();
}

}  // namespace

LadderError ladder_error(const Ladder& ladder, const std::vector<std::vector<Expected>>& expected,
                         const LadderPointers& arrays) {
  LadderError worst;
  std::size_t output = 0, array = 0;
  for (const LadderArray& a : ladder.arrays()) {
    const float* const found = arrays[array++];
    if (!a.is_output) continue;
    for (std::size_t i = 0; i < expected[output].size(); ++i) {
      worst.of_bound = std::max(worst.of_bound, part_of_bound(found[i], expected[output][i]));
      const double error = std::abs(found[i] - expected[output][i].value);
      if (output == 0 && !(error <= worst.greatest) && !std::isnan(worst.greatest)) worst.greatest = error;
    }
    ++output;
  }
  return worst;
}

double sum_rounding(std::int64_t n) {
  return (2 * std::sqrt(static_cast<double>(n)) + 8) * kRoundingFp32;
}

}  // namespace isobar
