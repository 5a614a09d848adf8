// Compares the figures of two runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/harness/testing.h"

namespace isobar::testing {

// Every number of the two runs' metrics.jsonl: the largest relative difference.
inline double difference(const std::vector<nlohmann::json>& a, const std::vector<nlohmann::json>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const nlohmann::json x = a[i].flatten(), y = b[i].flatten();
    REQUIRE(x.size() == y.size());
    for (const auto& [key, value] : x.items()) {
      INFO(key);
      REQUIRE(y.contains(key));
      if (!value.is_number()) continue;
      const double p = value, q = y[key];
      largest = std::max(largest, std::abs(p - q) / std::max(std::abs(p), 1e-300));
    }
  }
  return largest;
}

}  // namespace isobar::testing
