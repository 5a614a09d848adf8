// Failed checks of ranks that are threads. Catch2's assertions may be used in only one thread at a time: ranks collect
// their findings, and the test asserts on them afterwards.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "engine/tensor.h"
#include "kernels/common/check.h"

namespace isobar::testing {

class Findings {
 public:
  void expect(bool holds, const std::string& what) {
    if (holds) return;
    const std::lock_guard lock(mutex_);
    if (wrong_.empty()) wrong_ = what;
  }
  void expect_values(const Tensor& x, const std::vector<double>& expected, const std::string& what) {
    const std::vector<double> values = x.to_vector();
    expect(values.size() == expected.size(), what + ": size");
    for (std::size_t i = 0; i < values.size() && i < expected.size(); ++i)
      expect(values[i] == expected[i],
             concat(what, ": element ", i, " of ", values.size(), " is ", values[i], ", not ", expected[i]));
  }
  const std::string& wrong() const { return wrong_; }

 private:
  std::mutex mutex_;
  std::string wrong_;
};

}  // namespace isobar::testing
