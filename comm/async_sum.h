// An asynchronous sum over ranks of a few numbers of the host: begin() starts it, values() returns it later.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "engine/readback.h"
#include "engine/tensor.h"

namespace isobar {

class AsyncSum {
 public:
  // Sums `count` numbers. device: the one on which the ranks exchange tensors. On the CPU begin() waits for the others.
  AsyncSum(Communicator ranks, std::int64_t count, Device device);

  // Enqueues the sum in the current stream. All ranks call it. The host must wait for the stream before the next
  // begin().
  void begin(std::span<const double> values);
  // The sums; valid after gpu::synchronize of that stream. They are added in the same order as by
  // Communicator::all_reduce of the same numbers: the bits are the same.
  std::vector<double> values() const { return read_.values(); }

 private:
  Communicator ranks_;
  Tensor on_host_, sums_;  // [count] fp64
  Readback read_;
};

}  // namespace isobar
