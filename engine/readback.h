// Numbers that a device hands to the host without a wait of their own.
#pragma once

#include <vector>

#include "engine/tensor.h"

namespace isobar {

// begin() copies the tensor's values as they are when the current stream gets there; values() has them once the host
// has waited for that stream (gpu::synchronize), which one wait does for many. Of a tensor on the device meta, which
// has no values, it has zeros: what goes on by them (a step of training) takes its usual way.
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
