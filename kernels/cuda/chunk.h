// Chunks of arrays whose type is known at compile time (in array.h it is known at run time), moved in one or two
// accesses of up to 16 bytes. A kernel that must not wait for each load first loads several chunks as they are in
// memory, and then converts them.
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

// ---- one kernel for packed arrays, and for all others ---------------------------------------------------------------

// Used instead of an element type: any type, any alignment, see array.h.
struct AnyType {};

// A chunk of T is always whole and aligned; of AnyType it is the first `count` elements.
template <class T, int N>
struct Reader {
  const T* data;
  explicit Reader(const Input& from) : data(static_cast<const T*>(from.data)) {}
  __device__ __forceinline__ void read(std::int64_t i, int, float (&to)[N]) const {
    const Chunk<T, N> chunk = load_chunk<N>(data + i);
    for (int k = 0; k < N; ++k) to[k] = to_float(chunk.value[k]);
  }
};
template <int N>
struct Reader<AnyType, N> {
  Input data;
  explicit Reader(const Input& from) : data(from) {}
  __device__ __forceinline__ void read(std::int64_t i, int count, float (&to)[N]) const { load(data, i, count, to); }
};

template <class T, int N>
struct Writer {
  T* data;
  explicit Writer(const Output& to) : data(static_cast<T*>(to.data)) {}
  __device__ __forceinline__ void write(std::int64_t i, int, const float (&from)[N]) const {
    store_chunk<N>(data + i, from);
  }
};
template <int N>
struct Writer<AnyType, N> {
  Output data;
  explicit Writer(const Output& to) : data(to) {}
  __device__ __forceinline__ void write(std::int64_t i, int count, const float (&from)[N]) const {
    store(data, i, count, from);
  }
};

// Whether every whole chunk of each array is aligned.
template <class... Arrays>
bool all_packed(const Arrays&... arrays) {
  return (arrays.packed && ...);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
