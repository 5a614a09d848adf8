// Building blocks of the CPU kernels' loops: conversions, and elementary functions that the compiler vectorises when
// they are called in a loop (`#pragma omp simd`). fp32 is polynomial, fp64 is libm.
// Only for files compiled once per instruction set (kernels/cpu/isa.h): all is in that namespace.
// tools/fit_polynomials.py makes the coefficients.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/common/dtype.h"
#include "kernels/common/grad.h"

namespace isobar::cpu::ISOBAR_ISA {

#define ISOBAR_INLINE inline __attribute__((always_inline))

// Between any two floating types, with one rounding (fp64 to a 16-bit type: through fp32).
template <class To, class From>
ISOBAR_INLINE To convert(From x) {
  if constexpr (sizeof(To) == 2 || sizeof(From) == 2)
    return static_cast<To>(static_cast<float>(x));
  else
    return static_cast<To>(x);
}

// Calls f(Type<float>{}) or f(Type<double>{}), for arrays of fp32 or fp64. Any other dtype is an Error: f would access
// memory past an array of 16-bit elements.
template <class F>
ISOBAR_INLINE void visit_accumulator(DType dtype, const F& f) {
  if (dtype == DType::fp64)
    f(Type<double>{});
  else if (dtype == DType::fp32)
    f(Type<float>{});
  else
    fail_unsupported(dtype);
}

// eˣ within 2 ulp for fp32: x = n·ln 2 + r, |r| <= ln 2 / 2, and a polynomial in r. Infinity above 88.7, denormals
// below -87.3, 0 below -104, NaN for NaN.
ISOBAR_INLINE float exp(float x) {
  x = x > 90.0f ? 90.0f : x;
  x = x < -105.0f ? -105.0f : x;
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
  const float shifted = x * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0x1.62e4p-1f) - n * 1.42860677e-6f;  // ln 2 in two parts, the first one short
  float p = 0.0013948019f;
  p = p * r + 0.008367773f;
  p = p * r + 0.041666254f;
  p = p * r + 0.16666532f;
  p = p * r + 0.5f;
  p = p * (r * r) + r + 1.0f;
  // 2ⁿ as two factors, since n is -151 to 130.
  const std::int32_t whole = __builtin_bit_cast(std::int32_t, shifted) - __builtin_bit_cast(std::int32_t, kRound);
  const std::int32_t half = whole >> 1;
  return p * __builtin_bit_cast(float, (half + 127) << 23) * __builtin_bit_cast(float, (whole - half + 127) << 23);
}
ISOBAR_INLINE double exp(double x) {
  return std::exp(x);
}

// The normal distribution's Φ(x) and φ(x).
template <class Real>
struct Normal {
  Real cdf, density;
};

// fp32: Φ(-a) = φ(a)·(a polynomial in 1/(1 + 0.35·a)), so that both tails keep their relative accuracy.
ISOBAR_INLINE Normal<float> normal(float x) {
  const float a = x < 0 ? -x : x;
  const float bell = exp(-0.5f * a * a);
  const float t = 1.0f / (1.0f + 0.35f * a);
  float p = -0.02915787696838379f;
  p = p * t + 0.1440308690071106f;
  p = p * t - 0.25583890080451965f;
  p = p * t + 0.15931954979896545f;
  p = p * t - 0.02321224845945835f;
  p = p * t + 0.10555245727300644f;
  p = p * t + 0.11982130259275436f;
  p = p * t + 0.139863520860672f;
  p = p * t + 0.139621302485466f;
  const float tail = bell * (p * t);
  return {x < 0 ? tail : 1.0f - tail, bell * 0.398942280f};
}
ISOBAR_INLINE Normal<double> normal(double x) {
  return {0.5 * std::erfc(-x * 0.70710678118654752440), std::exp(-0.5 * x * x) * 0.39894228040143267794};
}

// σ(x) = 1/(1 + e⁻ˣ) and 1 - σ(x), each with its own relative accuracy.
template <class Real>
struct Sigmoid {
  Real value, complement;
};

template <class Real>
ISOBAR_INLINE Sigmoid<Real> sigmoid(Real x) {
  const Real e = exp(x < 0 ? x : -x);
  const Real large = Real(1) / (Real(1) + e), small = e * large;
  return x < 0 ? Sigmoid<Real>{small, large} : Sigmoid<Real>{large, small};
}

// tanh x within 3 ulp for fp32: an odd polynomial up to 0.6, beyond it (1 - e⁻²ˣ)/(1 + e⁻²ˣ), which would cancel there.
ISOBAR_INLINE float tanh(float x) {
  const float square = x * x;
  float p = -0.00590452890f;
  p = p * square + 0.0208047309f;
  p = p * square - 0.0537867149f;
  p = p * square + 0.133319629f;
  p = p * square - 0.333332997f;
  const float a = std::fabs(x), e = exp(-2.0f * a), small = a + a * (square * p), large = (1.0f - e) / (1.0f + e);
  return std::copysign(a < 0.6f ? small : large, x);
}
ISOBAR_INLINE double tanh(double x) {
  return std::tanh(x);
}

// out[c] (+)= Σ_block partial[block, c], in block order.
template <class Acc>
void add_blocks(std::int64_t blocks, std::int64_t stride, const Acc* partial, Grad mode, std::int64_t begin,
                std::int64_t end, Acc* out) {
  constexpr std::int64_t kChunk = 256;
  Acc sums[kChunk];
  for (std::int64_t first = begin; first < end; first += kChunk) {
    const std::int64_t n = end - first < kChunk ? end - first : kChunk;
    for (std::int64_t i = 0; i < n; ++i) sums[i] = 0;
    for (std::int64_t block = 0; block < blocks; ++block)
      for (std::int64_t i = 0; i < n; ++i) sums[i] += partial[block * stride + first + i];
    for (std::int64_t i = 0; i < n; ++i) out[first + i] = mode == Grad::accumulate ? out[first + i] + sums[i] : sums[i];
  }
}

}  // namespace isobar::cpu::ISOBAR_ISA
