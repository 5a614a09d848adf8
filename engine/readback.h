// Copies of device values for the host, without a wait for each.
#pragma once

#include <vector>

#include "engine/tensor.h"

namespace isobar {

// begin() copies the values that the tensor has at that point of the current stream. After the host has waited for that
// stream (gpu::synchronize), values() returns them. One wait is enough for many Readbacks. A tensor on the device meta
// has no values: values() returns zeros, and code that depends on them (a step of training) takes its usual way.
class Readback {
 public:
  Readback() = default;
  explicit Readback(Tensor tensor);

  void begin() const;
  std::vector<double> values() const { return copy_.to_vector(); }

 private:
  Tensor tensor_, copy_;  // the copy on the host
};

}  // namespace isobar
