// The clock that measures durations of a run.
#pragma once

#include <chrono>

namespace isobar {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Seconds since it was made, or since the last lap.
class Stopwatch {
 public:
  double lap() {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }

 private:
  Clock::time_point start_ = Clock::now();
};

}  // namespace isobar
