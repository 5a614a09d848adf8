// What an op is timed in.
#pragma once

#include "kernels/common/dtype.h"

namespace isobar::bench {

// A dtype; tf32 is fp32, of which a GPU may round what products read (kernels/gemm/gemm.h).
struct Arithmetic {
  DType dtype = DType::fp32;
  bool tf32 = false;

  operator DType() const { return dtype; }
  const char* name() const { return tf32 ? "tf32" : name_of(dtype); }
};

}  // namespace isobar::bench
