// Mean and standard deviation of values in parts: each part is summed in two passes, and parts are merged by the rule
// of Chan, Golub & LeVeque (1983). This avoids the cancellation of E[x²] - E[x]².
#pragma once

#include <cmath>
#include <span>

namespace isobar {

// Count, mean and sum of squared deviations from the mean, in fp64.
struct Moments {
  double count = 0, mean = 0, deviations = 0;

  // At least one value.
  static Moments of(std::span<const float> values) { return of_numbers(values); }
  static Moments of(std::span<const double> values) { return of_numbers(values); }

  // The last digits depend on the order of merging.
  void merge(const Moments& other) {
    const double total = count + other.count, distance = other.mean - mean;
    deviations += other.deviations + distance * distance * count * other.count / total;
    mean += distance * other.count / total;
    count = total;
  }

  double deviation() const { return std::sqrt(deviations / count); }  // of the population

 private:
  template <class T>
  static Moments of_numbers(std::span<const T> values) {
    Moments m;
    m.count = static_cast<double>(values.size());
    for (T value : values) m.mean += static_cast<double>(value);
    m.mean /= m.count;
    for (T value : values)
      m.deviations += (static_cast<double>(value) - m.mean) * (static_cast<double>(value) - m.mean);
    return m;
  }
};

}  // namespace isobar
