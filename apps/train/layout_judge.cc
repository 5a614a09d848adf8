#include "apps/train/layout_judge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kExact = 1e-12;

// A NaN, which no comparison detects, counts as infinitely far.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double max = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    max = std::max(max, difference);
  }
  return max;
}

// The tensor whose size sets the tolerance of tensor `name`.
std::string yardstick_of(const std::string& name) {
  const std::string keys = ".k.bias";
  return name.ends_with(keys) ? name.substr(0, name.size() - keys.size()) + ".q.bias" : name;
}

}  // namespace

double largest(const std::vector<double>& x) {
  double max = 0;
  for (const double value : x) max = std::max(max, std::abs(value));
  return max;
}

Deviation LayoutJudge::of_values(const std::string& name, const Values& exact, const Values& serial,
                                 const Values& parallel, double size) const {
  ISOBAR_CHECK(!exact.empty() && serial.size() == exact.size() && parallel.size() == exact.size(), name, ": ",
               exact.size(), " numbers in fp64, ", serial.size(), " of one rank and ", parallel.size(),
               " of the layout cannot be compared");
  ISOBAR_CHECK(size != 0, name, ": all numbers of one rank are zero, so nothing was compared");
  const double difference = largest_difference(exact, parallel);
  if (std::isinf(difference)) return {difference, difference, name, exact.size()};  // fails whatever one rank computes
  const double bound = rounding_ == 0 ? kExact * size : 2 * largest_difference(exact, serial) + rounding_ * size;
  return {difference / size, difference == 0 ? 0 : difference / bound, name, exact.size()};
}

Deviation LayoutJudge::worst(const NamedValues& exact, const NamedValues& serial, const NamedValues& parallel) const {
  ISOBAR_CHECK(!exact.empty() && serial.size() == exact.size() && parallel.size() == exact.size(), exact.size(),
               " tensors in fp64, ", serial.size(), " of one rank and ", parallel.size(),
               " of the layout cannot be compared");
  Deviation worst;
  std::size_t zero = 0;
  for (const auto& [name, values] : exact) {
    if (largest(values) == 0 && largest(serial.at(name)) == 0 && largest(parallel.at(name)) == 0) {
      ++zero;
      continue;
    }
    const auto yardstick = exact.find(yardstick_of(name));
    const double size = largest((yardstick == exact.end() ? exact.find(name) : yardstick)->second);
    const Deviation one = of_values(name, values, serial.at(name), parallel.at(name), size);
    if (worst.tensor.empty() || !(one.of_bound <= worst.of_bound)) worst = one;
  }
  ISOBAR_CHECK(zero < exact.size(), "all numbers of all ", zero, " tensors are zero, so nothing was compared");
  worst.compared = exact.size() - zero;
  worst.zero = zero;
  return worst;
}

}  // namespace isobar
