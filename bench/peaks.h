// What the device can do at most, measured in the same run as the kernels that are compared with it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "bench/arithmetic.h"
#include "bench/memory.h"
#include "bench/timing.h"

namespace isobar::bench {

// Times calls on a device with cold caches. Before every call a buffer larger than the caches is copied, on a CPU; on a
// GPU it is read: lines that a copy leaves in the L2 cache would be written back while the call is timed.
class Stopwatch {
 public:
  // `budget`: the seconds that repeating one call may take. `brief`: see measure_peaks.
  Stopwatch(Device device, double budget, bool brief = false);
  // At least three calls, after one that is not counted; more, up to fifty, while the budget lasts.
  Timing time(const std::function<void()>& call);
  double time_once(const std::function<void()>& call);  // seconds, with cold caches
  double copy_bandwidth();  // bytes read plus bytes written a second, of the quickest copy of that buffer

 private:
  void flush_caches();
  void copy();

  Device device_;
  double budget_;
  Memory memory_;
  std::size_t bytes_;
  void* from_;
  void* to_;
  double* sums_;  // of what is read to flush
};

// Of the quickest call each: whatever else the machine does makes a peak too low.
struct Peaks {
  double bandwidth;          // bytes/s
  double flops;              // flop/s
  std::string flops_source;  // how flops was measured
  std::string bandwidth_source = "copy";
};

// CPU: fused multiply-adds in fp32 on all threads; for bf16 products of AMX tiles where there are any, or of
// AVX512_BF16 where those do more. CUDA: a large GEMM of this dtype. `brief`: there of a small one, and of copies that
// stay in the caches; for tests on the virtual GPU, which is slow.
Peaks measure_peaks(Device device, Arithmetic dtype, Stopwatch& stopwatch, bool brief = false);

}  // namespace isobar::bench
