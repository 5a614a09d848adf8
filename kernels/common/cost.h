// The cost model of a kernel as code: the bytes and operations that any implementation needs.
#pragma once

#include <cstdint>

namespace isobar {

struct Cost {
  double bytes = 0;  // read and written at least once, with perfect caches
  double flops = 0;  // a multiply-add counts as two

  // The min seconds at a given bandwidth [bytes/s] and arithmetic peak [flop/s].
  constexpr double floor_seconds(double bandwidth, double peak) const {
    const double memory = bytes / bandwidth;
    const double compute = peak > 0 ? flops / peak : 0;
    return memory > compute ? memory : compute;
  }
};

}  // namespace isobar
