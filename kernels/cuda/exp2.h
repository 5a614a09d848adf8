// The exponential of the softmax, in base 2: with the scale of the scores times log2(e) folded into one multiplication.
#pragma once

#include <cfloat>

#include "kernels/cuda/platform.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

// 2^x to within 2 ulp, one instruction; 0 where that is subnormal.
__device__ __forceinline__ float exp2_approx(float x) {
#if defined(ISOBAR_EMULATE)
  const float y = exp2f(x);
  return y < FLT_MIN ? 0 : y;
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
