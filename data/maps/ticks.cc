#include "data/maps/ticks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace isobar {

std::string number_text(double value, int decimals) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value + 0.0);
  return buffer;
}

int decimals_for_step(double step) {
  return std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 9);
}

Ticks round_ticks(NumberRange range, int count) {
  const double rough = (range.high - range.low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  int decimals = decimals_for_step(step);
  for (const double digit : {5.0, 2.5, 2.0, 1.0}) {
    if (digit * power < rough) break;
    step = digit * power;
    decimals = decimals_for_step(digit == 2.5 ? power / 10 : power);
  }
  Ticks ticks{{}, decimals};
  for (double i = std::ceil(range.low / step - 1e-9); i * step <= range.high + 1e-9 * step; ++i) {
    ticks.values.push_back(i * step);
  }
  return ticks;
}

}  // namespace isobar
