// How far two runs of the same steps may differ in another layout, another precision, or both.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace isobar {

// The largest deviation of one run from another.
struct Deviation {
  double difference = 0;     // relative to the largest element of the tensor
  double of_bound = 0;       // relative to the bound; 1: the max allowed
  std::string tensor;        // its name; empty: not a tensor
  std::size_t compared = 0;  // number of elements, or of tensors
  // Number of tensors that are zero in all runs, so that nothing can be compared: of a dropped branch, say
  std::size_t zero = 0;
};

// Compares three runs of the same steps: `exact` in fp64; `serial` and `parallel` in the checked precision. If exact
// and serial are the same run, the bound is 1e-12 of a tensor's largest element. Otherwise `parallel` may differ from
// `exact` by twice the difference of `serial`, plus a rounding.
class LayoutJudge {
 public:
  using Values = std::vector<double>;
  using NamedValues = std::map<std::string, Values>;

  // rounding: relative, of the checked precision; 0 if exact and serial are the same run.
  explicit LayoutJudge(double rounding) : rounding_(rounding) {}

  // size: the largest element; differences are relative to it. NaN is infinitely far. Error if nothing can be compared:
  // no numbers, different counts, or size zero.
  Deviation of_values(const std::string& name, const Values& exact, const Values& serial, const Values& parallel,
                      double size) const;

  // The tensor with the largest deviation, among those that are not zero in all three runs; Error if all are zero. The
  // gradient of a key bias is rounding noise, so its size is that of the query bias.
  Deviation worst(const NamedValues& exact, const NamedValues& serial, const NamedValues& parallel) const;

 private:
  double rounding_;
};

double largest(const std::vector<double>& x);

}  // namespace isobar
