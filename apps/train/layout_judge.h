// How far runs of the same steps may be apart: in another arrangement, precision, or both.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace isobar {

// How far one run is from another, where it is farthest.
struct Deviation {
  double difference = 0;     // of the largest element of the tensor
  double of_bound = 0;       // 1: as far as it may be
  std::string tensor;        // empty: of no tensor
  std::size_t compared = 0;  // numbers, or tensors
  std::size_t zero = 0;      // tensors of zeros, in which nothing can be compared: of a branch that was dropped
};

// Three runs of the same steps: exact in fp64; serial and parallel in the precision checked. Bound: where exact and
// serial are one, 1e-12 of a tensor's largest element; otherwise `parallel` may differ from `exact` twice as much as
// `serial`, and by a rounding.
class LayoutJudge {
 public:
  using Values = std::vector<double>;
  using NamedValues = std::map<std::string, Values>;

  // rounding: of the precision, relative; 0 where exact and serial are one.
  explicit LayoutJudge(double rounding) : rounding_(rounding) {}

  // size: of the largest element that the differences are measured by. NaN is as far as can be. Error where there is
  // nothing to compare: no numbers, not as many everywhere, or a size of zero.
  Deviation of_values(const std::string& name, const Values& exact, const Values& serial, const Values& parallel,
                      double size) const;

  // The tensor that is farthest, of those that are not zero in all three; Error where all are. That of a bias of keys,
  // whose gradient is rounding noise, is measured by that of the queries.
  Deviation worst(const NamedValues& exact, const NamedValues& serial, const NamedValues& parallel) const;

 private:
  double rounding_;
};

double largest(const std::vector<double>& x);

}  // namespace isobar
