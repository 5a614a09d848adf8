// Arrays whose element type is known at run time. Memory-bound kernels use them, so that they need no instance for
// every combination of dtypes: the branch on the type is the same for all threads, and memory latency hides it.
//
// Elements move in chunks of N that start at a multiple of N. A chunk is one or two 16-byte accesses if pointer and row
// length allow it (the emulator checks); otherwise, and at the ragged end of a row, it is moved element by element.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "kernels/common/check.h"
#include "kernels/common/dtype.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

struct Input {
  const void* data;  // may be null if the kernel allows it
  DType dtype;
  bool packed;  // every whole chunk is aligned
};

struct Output {
  void* data;
  DType dtype;
  bool packed;
};

template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Chunk {
  T value[N];
};

// The address of a whole chunk must be aligned; in the emulator it is an error if not.
template <class T, int N>
__device__ __forceinline__ void require_aligned([[maybe_unused]] const T* chunk) {
#if defined(ISOBAR_EMULATE)
  check_aligned(chunk, alignof(Chunk<T, N>), std::source_location::current());
  one_access(chunk, sizeof(Chunk<T, N>));
#endif
}

// Whether chunks of N that start at a multiple of N in rows of this length (0: one row) are aligned.
template <int N>
bool chunks_are_aligned(const void* data, DType dtype, std::int64_t row_length) {
  const std::size_t alignment = N * size_of(dtype) < 16 ? N * size_of(dtype) : 16;
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0 && row_length % N == 0;
}

template <int N>
Input input(const void* data, DType dtype, std::int64_t row_length = 0) {
  return {data, dtype, chunks_are_aligned<N>(data, dtype, row_length)};
}

template <int N>
Output output(void* data, DType dtype, std::int64_t row_length = 0) {
  return {data, dtype, chunks_are_aligned<N>(data, dtype, row_length)};
}

// fp64 exists on the CPU only.
template <class... Types>
void require_cuda_dtypes(const char* kernel, Types... dtypes) {
  for (const DType dtype : {dtypes...}) {
    ISOBAR_CHECK(dtype == DType::fp32 || is_16_bit(dtype), kernel, ": ", name_of(dtype),
                 " is not a CUDA dtype; use fp32, bf16 or fp16, or the CPU");
  }
}

template <class T, int N>
__device__ __forceinline__ void load_as(const void* data, std::int64_t i, bool whole, int count, float (&to)[N]) {
  const T* from = static_cast<const T*>(data) + i;
  if (whole) {
    require_aligned<T, N>(from);
    const auto chunk = *reinterpret_cast<const Chunk<T, N>*>(from);
    for (int k = 0; k < N; ++k) to[k] = to_float(chunk.value[k]);
  } else {
    for (int k = 0; k < N; ++k) to[k] = k < count ? to_float(from[k]) : 0.0f;
  }
}

// Elements i to i + count - 1 of a, and zeros up to N.
template <int N>
__device__ __forceinline__ void load(const Input& a, std::int64_t i, int count, float (&to)[N]) {
  const bool whole = a.packed && count == N;
  if (a.dtype == DType::bf16) {
    load_as<bf16>(a.data, i, whole, count, to);
  } else if (a.dtype == DType::fp16) {
    load_as<fp16>(a.data, i, whole, count, to);
  } else {
    load_as<float>(a.data, i, whole, count, to);
  }
}

template <class T, int N>
__device__ __forceinline__ void store_as(void* data, std::int64_t i, bool whole, int count, const float (&from)[N]) {
  T* to = static_cast<T*>(data) + i;
  if (whole) {
    require_aligned<T, N>(to);
    Chunk<T, N> chunk;
    for (int k = 0; k < N; ++k) chunk.value[k] = from_float<T>(from[k]);
    *reinterpret_cast<Chunk<T, N>*>(to) = chunk;
  } else {
    for (int k = 0; k < N; ++k) {
      if (k < count) to[k] = from_float<T>(from[k]);
    }
  }
}

template <int N>
__device__ __forceinline__ void store(const Output& a, std::int64_t i, int count, const float (&from)[N]) {
  const bool whole = a.packed && count == N;
  if (a.dtype == DType::bf16) {
    store_as<bf16>(a.data, i, whole, count, from);
  } else if (a.dtype == DType::fp16) {
    store_as<fp16>(a.data, i, whole, count, from);
  } else {
    store_as<float>(a.data, i, whole, count, from);
  }
}

__device__ __forceinline__ float round_to(DType dtype, float x) {
  if (dtype == DType::bf16) return to_float(from_float<bf16>(x));
  if (dtype == DType::fp16) return to_float(from_float<fp16>(x));
  return x;
}

// Calls f(i, count) for every chunk of [0, n), distributed over all threads of the grid.
template <int N, class F>
__device__ __forceinline__ void for_each_chunk(std::int64_t n, const F& f) {
  for (std::int64_t i = global_thread() * N; i < n; i += global_threads() * N) {
    f(i, n - i < N ? static_cast<int>(n - i) : N);
  }
}

// The max number of blocks of a kernel with a grid-stride loop. The emulator uses few, so that small tests repeat the
// loop, unless ISOBAR_EMULATOR_WHOLE_GRIDS is set.
inline int grid_limit(std::int64_t blocks) {
#if defined(ISOBAR_EMULATE)
  static const bool whole = std::getenv("ISOBAR_EMULATOR_WHOLE_GRIDS") != nullptr;
  if (blocks > 11 && !whole) return 11;
#endif
  return static_cast<int>(blocks);
}

inline constexpr int kMapThreads = 256;

// The grid of a kernel that is one for_each_chunk<N>: enough blocks to fill any GPU; then each thread takes several
// chunks.
template <int N>
int map_blocks(std::int64_t n) {
  return blocks_for(n, std::int64_t{kMapThreads} * N, grid_limit(1 << 14));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
