// How the algorithms of libraries are chosen by time on a GPU, whatever they compute: when it is allowed, and by which
// clock. For the host code of kernels.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>

#include "kernels/common/device.h"
#include "kernels/common/stream.h"
#include "kernels/cuda/runtime.h"

namespace isobar::cuda {

// While one lives, a computation for which no algorithm is given takes the fastest of the library's candidates. They
// are timed when the computation first occurs, some tens of milliseconds. For all threads of the process that use the
// device.
class AlgorithmTiming {
 public:
  explicit AlgorithmTiming(Device device);
  ~AlgorithmTiming();
  AlgorithmTiming(const AlgorithmTiming&) = delete;
  AlgorithmTiming& operator=(const AlgorithmTiming&) = delete;

 private:
  Device device_;
};

// Whether an AlgorithmTiming lives. Never while a graph is being captured on the stream.
bool may_time(int device, Stream stream);

inline constexpr int kCandidates = 16;           // max number that is timed
inline constexpr double kMaxMilliseconds = 100;  // after this time, the remaining candidates are skipped

// A timer for calls, in milliseconds of the device.
class Stopwatch {
 public:
  explicit Stopwatch(Stream stream) : stream_(stream) {}

  // The time of one of `count` calls in a row; infinite if one fails, which is no error here.
  double time(int count, const std::function<bool()>& call);
  // The minimum of a few bursts of calls after an untimed one; infinite if the call fails, or, without any burst, if
  // the first call took much longer than `min_so_far`.
  double best_of(const std::function<bool()>& call, double min_so_far = std::numeric_limits<double>::infinity());
  double spent() const { return spent_; }

 private:
  Stream stream_;
  gpu::Timer timer_;
  double spent_ = 0;
};

// Memory that is allocated and freed in stream order.
class Scratch {
 public:
  Scratch(std::size_t bytes, int device, Stream stream)
      : stream_(stream), data_(gpu::allocate(bytes, device, stream)) {}
  ~Scratch() { gpu::free(data_, stream_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  Stream stream_;
  void* data_;
};

}  // namespace isobar::cuda
