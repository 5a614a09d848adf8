// Chunks of arrays whose type a kernel knows when it is compiled (those of array.h learn it when they run), moved in
// one or two accesses of up to 16 bytes. A kernel that must not wait for one load before the next loads several chunks
// as they lie in memory, and converts them after.
#pragma once

#include "kernels/cuda/array.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

template <int N, class T>
__device__ __forceinline__ Chunk<T, N> load_chunk(const T* from) {
  require_aligned<T, N>(from);
  return *reinterpret_cast<const Chunk<T, N>*>(from);
}

template <int N, class T>
__device__ __forceinline__ void store_chunk(T* to, const float (&from)[N]) {
  require_aligned<T, N>(to);
  Chunk<T, N> chunk;
  for (int k = 0; k < N; ++k) chunk.value[k] = from_float<T>(from[k]);
  *reinterpret_cast<Chunk<T, N>*>(to) = chunk;
}

// Whether every whole chunk of each array is aligned.
template <class... Arrays>
bool all_packed(const Arrays&... arrays) {
  return (arrays.packed && ...);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
