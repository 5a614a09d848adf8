// The clock that measures durations of a run.
#pragma once

#include <chrono>

namespace isobar {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace isobar
