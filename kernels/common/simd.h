// Vectors of the instruction set a file is compiled for (kernels/common/isa.h), and the register tile on which GEMM
// and attention are built: C += A · B with all of C in registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/dtype.h"
#include "kernels/common/isa.h"

#if defined(ISOBAR_ISA_IS_avx512)
#include <immintrin.h>
#endif

#define ISOBAR_INLINE inline __attribute__((always_inline))

namespace isobar::cpu::ISOBAR_ISA {

// A tile of kTileRows x 2 vectors fills the register file: 28 of 32 registers of AVX-512, 12 of 16 otherwise.
#if defined(ISOBAR_ISA_IS_avx512)
inline constexpr int kVectorBytes = 64;
inline constexpr int kTileRows = 14;
#elif defined(ISOBAR_ISA_IS_avx2)
inline constexpr int kVectorBytes = 32;
inline constexpr int kTileRows = 6;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kTileRows = 6;
#endif

template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class T>
ISOBAR_INLINE Vector<T> load(const T* from) {
  Vector<T> v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class T>
ISOBAR_INLINE void store(T* to, Vector<T> v) {
  __builtin_memcpy(to, &v, sizeof v);
}
template <class T>
ISOBAR_INLINE Vector<T> broadcast(T value) {
  return value - Vector<T>{};
}

// C [kRows, kVectors vectors] in registers.
template <class T, int kRows, int kVectors>
struct Tile {
  Vector<T> c[kRows][kVectors];

  ISOBAR_INLINE void clear() {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) c[i][v] = Vector<T>{};
  }

  // C += Σ_k A(i, k) · B(k, :) with A(i, k) = a[i·kRowStep + k·kStep], B(k, :) = b + k·kBStep. The steps are constants
  // so that every address is one register plus an immediate.
  template <int kRowStep, int kStep, int kBStep>
  ISOBAR_INLINE void multiply(const T* __restrict__ a, const T* __restrict__ b, std::int64_t count) {
    for (std::int64_t k = 0; k < count; ++k, a += kStep, b += kBStep) {
      Vector<T> row[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) row[v] = load(b + v * kLanes<T>);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Vector<T> factor = broadcast(a[i * kRowStep]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) c[i][v] += factor * row[v];
      }
    }
  }

  template <int kRowStep>
  ISOBAR_INLINE void store_to(T* to) const {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) store(to + i * kRowStep + v * kLanes<T>, c[i][v]);
  }
};

}  // namespace isobar::cpu::ISOBAR_ISA
