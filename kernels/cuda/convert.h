// Conversions between float and the 16-bit types with the device's instructions. Both directions round to nearest, ties
// to even, like those of kernels/common/dtype.h, which host code and the emulator use.
#pragma once

#include "kernels/common/dtype.h"
#include "kernels/cuda/platform.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(bf16 x) {
  return static_cast<float>(x);
}
__device__ __forceinline__ float to_float(fp16 x) {
#if defined(ISOBAR_EMULATE)
  return static_cast<float>(x);
#else
  return __half2float(__ushort_as_half(x.bits));
#endif
}

template <class T>
__device__ __forceinline__ T from_float(float x);

template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
#if defined(ISOBAR_EMULATE)
  return bf16(x);
#else
  bf16 y;
  y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
  return y;
#endif
}
template <>
__device__ __forceinline__ fp16 from_float<fp16>(float x) {
#if defined(ISOBAR_EMULATE)
  return fp16(x);
#else
  fp16 y;
  y.bits = __half_as_ushort(__float2half_rn(x));
  return y;
#endif
}

// Two 16-bit elements in one register, the first in the low half: the layout of mma fragments and of 4-byte stores.
template <class T>
__device__ __forceinline__ std::uint32_t pack_two(float first, float second) {
  return static_cast<std::uint32_t>(from_float<T>(first).bits) | static_cast<std::uint32_t>(from_float<T>(second).bits)
                                                                     << 16;
}
#if !defined(ISOBAR_EMULATE)
template <>
__device__ __forceinline__ std::uint32_t pack_two<bf16>(float first, float second) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
}
template <>
__device__ __forceinline__ std::uint32_t pack_two<fp16>(float first, float second) {
  std::uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
}
#endif

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
