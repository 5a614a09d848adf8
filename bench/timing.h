// Seconds of several calls, summed up.
#pragma once

#include <algorithm>
#include <vector>

namespace isobar::bench {

struct Timing {
  double min, median, max;  // seconds
  int calls;
};

// seconds: of one call each, at least one.
inline Timing timing_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2], seconds.back(), static_cast<int>(seconds.size())};
}

}  // namespace isobar::bench
