// Sixteen bytes of elements, moved by one load or store. Pointers must be 16-byte aligned (the emulator checks).
#pragma once

#include "kernels/cuda/convert.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));

  T value[kSize];

  __device__ __forceinline__ T& operator[](int i) { return value[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return value[i]; }
};

struct TwoFloats {
  float first, second;
};

#if defined(ISOBAR_EMULATE)

template <class T>
Pack<T> load_pack(const T* from, ISOBAR_SITE) {
  check_aligned(from, 16, site);
  Pack<T> pack;
  for (int i = 0; i < Pack<T>::kSize; ++i) pack[i] = from[i];
  return pack;
}
template <class T>
void store_pack(T* to, const Pack<T>& pack, ISOBAR_SITE) {
  check_aligned(to, 16, site);
  for (int i = 0; i < Pack<T>::kSize; ++i) to[i] = pack[i];
}
template <class T>
TwoFloats load_two(const T* from, ISOBAR_SITE) {
  check_aligned(from, 2 * sizeof(T), site);
  return {to_float(from[0]), to_float(from[1])};
}
template <class T>
void store_two(T* to, float first, float second, ISOBAR_SITE) {
  check_aligned(to, 2 * sizeof(T), site);
  to[0] = from_float<T>(first);
  to[1] = from_float<T>(second);
}

#else

template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* from) {
  return std::bit_cast<Pack<T> >(*reinterpret_cast<const uint4*>(from));
}
template <class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T>& pack) {
  *reinterpret_cast<uint4*>(to) = std::bit_cast<uint4>(pack);
}
// Two neighbouring elements; the pointer is aligned to their total size.
template <class T>
__device__ __forceinline__ TwoFloats load_two(const T* from) {
  if constexpr (sizeof(T) == 2) {
    const auto packed = *reinterpret_cast<const std::uint32_t*>(from);
    return {to_float(std::bit_cast<T>(static_cast<std::uint16_t>(packed))),
            to_float(std::bit_cast<T>(static_cast<std::uint16_t>(packed >> 16)))};
  } else {
    return std::bit_cast<TwoFloats>(*reinterpret_cast<const float2*>(from));
  }
}
template <class T>
__device__ __forceinline__ void store_two(T* to, float first, float second) {
  if constexpr (sizeof(T) == 2)
    *reinterpret_cast<std::uint32_t*>(to) = pack_two<T>(first, second);
  else
    *reinterpret_cast<float2*>(to) = make_float2(first, second);
}

#endif

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
