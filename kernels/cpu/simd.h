// Vectors of the instruction set that a file is compiled for (kernels/cpu/isa.h), and the register tile of GEMM and
// attention: C += A · B with all of C in registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/vector_math.h"

#if defined(ISOBAR_ISA_IS_avx512)
#include <immintrin.h>
#endif

namespace isobar::cpu::ISOBAR_ISA {

// For sizes. std::min is a template of which the linker keeps one copy for all sets (tools/check_isa_symbols.py).
constexpr std::int64_t min(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// The shape of a register tile: kTileRows rows of kTileVectors vectors. Wide tiles need fewer loads for each product:
// with data in the first-level cache 8 x 3 vectors reach 97 % of the peak, 14 x 2 only 89 %.
#if defined(ISOBAR_ISA_IS_avx512)
inline constexpr int kVectorBytes = 64;
inline constexpr int kTileRows = 8;
#elif defined(ISOBAR_ISA_IS_avx2)
inline constexpr int kVectorBytes = 32;
inline constexpr int kTileRows = 4;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kTileRows = 4;
#endif
inline constexpr int kTileVectors = 3;

template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
template <class T>
inline constexpr int kPanel = kTileVectors* kLanes<T>;  // columns of a tile

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

#if defined(ISOBAR_ISA_IS_avx512)
// All lanes. The intrinsics without a mask make GCC 12 warn of its own uninitialised variable.
inline constexpr __mmask16 kEvery = 0xffff;
#endif

// The larger one in every lane; b if either is NaN.
template <class T>
ISOBAR_INLINE Vector<T> max(Vector<T> a, Vector<T> b) {
#if defined(ISOBAR_ISA_IS_avx512)
  if constexpr (sizeof(T) == 4)
    return (Vector<T>)_mm512_maskz_max_ps(kEvery, (__m512)a, (__m512)b);
  else
    return (Vector<T>)_mm512_maskz_max_pd(0xff, (__m512d)a, (__m512d)b);
#else
  return a > b ? a : b;
#endif
}

// 2^x to 1e-7 (fp32) or to the last bits (fp64); 0 for -inf and NaN for NaN. Below 2^-126 fp32 may give 2^-126.
ISOBAR_INLINE Vector<float> exp2_of(Vector<float> x) {
#if defined(ISOBAR_ISA_IS_avx512)
  const auto fraction = (Vector<float>)_mm512_maskz_reduce_ps(kEvery, (__m512)x, _MM_FROUND_TO_NEAREST_INT);
  const Vector<float> exponent = x - fraction;
#else
  // Adding 1.5·2^23 leaves the nearest integer in the low bits of the sum.
  constexpr float kToInteger = 12582912.0f;
  x = max<float>(broadcast(-126.0f), x);
  const Vector<float> shifted = x + kToInteger;
  const Vector<float> fraction = x - (shifted - kToInteger);
#endif
  // The minimax polynomial of 2^f for |f| <= 1/2 by relative error (Remez): 7.5e-8.
  Vector<float> p = fraction * 0.0013276472632f + 0.00967554134312f;
  p = p * fraction + 0.0555071327186f;
  p = p * fraction + 0.240221197237f;
  p = p * fraction + 0.693146967065f;
  p = p * fraction + 1.00000007165f;
#if defined(ISOBAR_ISA_IS_avx512)
  return (Vector<float>)_mm512_maskz_scalef_ps(kEvery, (__m512)p, (__m512)exponent);
#else
  typedef std::uint32_t Integers __attribute__((vector_size(kVectorBytes)));
  return (Vector<float>)((Integers)p + ((Integers)shifted << 23));
#endif
}
ISOBAR_INLINE Vector<double> exp2_of(Vector<double> x) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = __builtin_exp2(x[i]);
  return x;
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

  // C += Σ_k A(i, k) · B(k, :) with A(i, k) = a[i·kRowStep + k·kStep], B(k, :) = b + k·kBStep. The steps are constants,
  // so that every address is one register plus an immediate.
  template <int kRowStep, int kStep, int kBStep>
  ISOBAR_INLINE void multiply(const T* __restrict__ a, const T* __restrict__ b, std::int64_t count) {
#pragma GCC unroll 2
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

  ISOBAR_INLINE void load_from(const T* from, std::int64_t row_step) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) c[i][v] = load(from + i * row_step + v * kLanes<T>);
  }
  ISOBAR_INLINE void store_to(T* to, std::int64_t row_step) const {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) store(to + i * row_step + v * kLanes<T>, c[i][v]);
  }
  template <int kRowStep>
  ISOBAR_INLINE void load_from(const T* from) {
    load_from(from, kRowStep);
  }
  template <int kRowStep>
  ISOBAR_INLINE void store_to(T* to) const {
    store_to(to, kRowStep);
  }
};

}  // namespace isobar::cpu::ISOBAR_ISA
