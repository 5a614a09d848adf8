// The cost model of a kernel as code: what must move and what must be computed, whatever the implementation.
#pragma once

#include <cstdint>

namespace isobar {

struct Cost {
  double bytes = 0;  // read and written at least once, caches assumed perfect
  double flops = 0;  // multiply and add counted as two

  // The least seconds at a given bandwidth [bytes/s] and arithmetic peak [flop/s].
  constexpr double floor_seconds(double bandwidth, double peak) const {
    const double memory = bytes / bandwidth;
    const double compute = peak > 0 ? flops / peak : 0;
    return memory > compute ? memory : compute;
  }
};

}  // namespace isobar
