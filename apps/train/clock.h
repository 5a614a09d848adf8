// The clock that durations of a run are measured with.
#pragma once

#include <chrono>

namespace isobar {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace isobar
