// Mean and standard deviation of values that come in parts: each part is summed in two passes, and parts are merged by
// the rule of Chan, Golub & LeVeque (1983). No large squares are subtracted, as E[x²] - E[x]² would do.
#pragma once

#include <cmath>
#include <span>

namespace isobar {

// Count, mean and sum of squared deviations from it, in fp64.
struct Moments {
  double count = 0, mean = 0, deviations = 0;

  static Moments of(std::span<const float> values) {  // at least one value
    Moments m{static_cast<double>(values.size()), 0, 0};
    for (float value : values) m.mean += static_cast<double>(value);
    m.mean /= m.count;
    for (float value : values)
      m.deviations += (static_cast<double>(value) - m.mean) * (static_cast<double>(value) - m.mean);
    return m;
  }

  // The last digits depend on the order in which parts are merged.
  void merge(const Moments& other) {
    const double total = count + other.count, distance = other.mean - mean;
    deviations += other.deviations + distance * distance * count * other.count / total;
    mean += distance * other.count / total;
    count = total;
  }

  double deviation() const { return std::sqrt(deviations / count); }  // the population's
};

}  // namespace isobar
