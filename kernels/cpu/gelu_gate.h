// The two GELUs as x·gate(x), for the CPU kernels that apply them: gelu, and matrix products with a GELU.
// Only for files compiled once per instruction set (kernels/cpu/isa.h).
#pragma once

#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {

// The gate and its derivative.
template <class Real>
struct Gate {
  Real value, slope;
};

struct GeluErf {
  template <class Real>
  static ISOBAR_INLINE Gate<Real> gate(Real x) {
    const Normal<Real> n = normal(x);
    return {n.cdf, n.density};
  }
};

struct GeluTanh {
  // 0.5·(1 + tanh u) = 1/(1 + e⁻²ᵘ)
  template <class Real>
  static ISOBAR_INLINE Gate<Real> gate(Real x) {
    constexpr Real kTwoRootTwoOverPi = Real(1.59576912160573071176);
    const Real square = x * x;
    const Sigmoid<Real> s = sigmoid(kTwoRootTwoOverPi * x * (Real(1) + Real(0.044715) * square));
    return {s.value, s.value * s.complement * kTwoRootTwoOverPi * (Real(1) + Real(3 * 0.044715) * square)};
  }
};

}  // namespace isobar::cpu::ISOBAR_ISA
