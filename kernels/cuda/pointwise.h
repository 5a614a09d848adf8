// relu, leaky_relu and tanh of a GPU's float, and their derivatives from the value: for pointwise itself and for what
// follows a convolution. The branch on the kind is the same for all threads.
#pragma once

#include "kernels/common/activation.h"
#include "kernels/cuda/platform.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

inline constexpr float kLeakySlopeOfFloat = static_cast<float>(kLeakySlope);

__device__ __forceinline__ float pointwise(Pointwise kind, float x) {
  if (kind == Pointwise::relu) return x < 0 ? 0.0f : x;  // x where it is NaN
  if (kind == Pointwise::leaky_relu) return x > 0 ? x : kLeakySlopeOfFloat * x;
  return kind == Pointwise::tanh ? tanhf(x) : x;
}

__device__ __forceinline__ float pointwise_slope(Pointwise kind, float y) {
  if (kind == Pointwise::relu) return y > 0 ? 1.0f : 0.0f;
  if (kind == Pointwise::leaky_relu) return y > 0 ? 1.0f : kLeakySlopeOfFloat;
  return kind == Pointwise::tanh ? 1.0f - y * y : 1.0f;
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
