// The exponential of the softmax, in base 2: one multiplication applies both the scale of the scores and log2(e).
#pragma once

#include <cfloat>

#include "kernels/cuda/platform.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

// 2^x to within 2 ulp, one instruction; 0 if that is subnormal.
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
