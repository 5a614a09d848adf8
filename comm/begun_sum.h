// A sum over ranks of a few numbers of the host, that is begun now and asked for later: nobody waits in between.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "engine/readback.h"
#include "engine/tensor.h"

namespace isobar {

class BegunSum {
 public:
  // Of `count` numbers. device: where ranks exchange tensors; on the CPU begin() itself waits for the others.
  BegunSum(Communicator ranks, std::int64_t count, Device device);

  // Puts the sum into the current stream. All ranks call it. The host has waited for the stream since the last one.
  void begin(std::span<const double> values);
  // The sums, once the host has waited for that stream (gpu::synchronize). In the order of ranks, as
  // Communicator::all_reduce of the same numbers has them: the same bits.
  std::vector<double> values() const { return read_.values(); }

 private:
  Communicator ranks_;
  Tensor on_host_, sums_;  // [count] fp64
  Readback read_;
};

}  // namespace isobar
