#include "kernels/cuda/timing.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace isobar::cuda {
namespace {

constexpr int kBurst = 10;  // calls in a row: the host is ahead of the device, and does not add to their time
constexpr int kBursts = 2;  // per candidate, after an untimed call

// How many AlgorithmTiming objects live, by device.
struct Living {
  std::mutex mutex;
  std::map<int, int> timings;

  void add(int device, int change) {
    const std::lock_guard lock(mutex);
    timings[device] += change;
  }
  bool any(int device) {
    const std::lock_guard lock(mutex);
    return timings[device] > 0;
  }
};

Living& living() {
  static Living instance;
  return instance;
}

}  // namespace

AlgorithmTiming::AlgorithmTiming(Device device) : device_(device) {
  living().add(device.index, 1);
}

AlgorithmTiming::~AlgorithmTiming() {
  living().add(device_.index, -1);
}

bool may_time(int device, Stream stream) {
  return !gpu::is_captured(stream) && living().any(device);
}

double Stopwatch::time(int count, const std::function<bool()>& call) {
  timer_.start(stream_);
  bool has_run = true;
  for (int i = 0; i < count && has_run; ++i) has_run = call();
  const double milliseconds = timer_.stop(stream_);
  spent_ += milliseconds;
  return has_run ? milliseconds / count : std::numeric_limits<double>::infinity();
}

double Stopwatch::best_of(const std::function<bool()>& call, double min_so_far) {
  constexpr double kHostMilliseconds = 0.05;  // milliseconds of a single call that may be the host's
  double best = std::numeric_limits<double>::infinity();
  if (time(1, call) > 2 * min_so_far + kHostMilliseconds) return best;
  for (int burst = 0; burst < kBursts; ++burst) best = std::min(best, time(kBurst, call));
  return best;
}

}  // namespace isobar::cuda
