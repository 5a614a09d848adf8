// relu, leaky_relu and tanh as types, for the CPU kernels that apply them: pointwise itself and what follows a
// convolution. Only for files compiled once an instruction set (kernels/cpu/isa.h).
#pragma once

#include "kernels/common/activation.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {

// value: of x; slope: the derivative, of the value.
struct Identity {
  template <class Real>
  static ISOBAR_INLINE Real value(Real x) {
    return x;
  }
  template <class Real>
  static ISOBAR_INLINE Real slope(Real) {
    return Real(1);
  }
};

struct Relu {
  template <class Real>
  static ISOBAR_INLINE Real value(Real x) {
    return x < 0 ? Real(0) : x;  // x where it is NaN
  }
  template <class Real>
  static ISOBAR_INLINE Real slope(Real y) {
    return y > 0 ? Real(1) : Real(0);
  }
};

struct LeakyRelu {
  template <class Real>
  static ISOBAR_INLINE Real value(Real x) {
    return x > 0 ? x : Real(kLeakySlope) * x;
  }
  template <class Real>
  static ISOBAR_INLINE Real slope(Real y) {
    return y > 0 ? Real(1) : Real(kLeakySlope);
  }
};

struct Tanh {
  template <class Real>
  static ISOBAR_INLINE Real value(Real x) {
    return tanh(x);
  }
  template <class Real>
  static ISOBAR_INLINE Real slope(Real y) {
    return Real(1) - y * y;
  }
};

// Calls f(Kind{}) with the type of a kind.
template <class F>
ISOBAR_INLINE void visit_pointwise(Pointwise kind, const F& f) {
  switch (kind) {
    case Pointwise::relu:
      return f(Relu{});
    case Pointwise::leaky_relu:
      return f(LeakyRelu{});
    case Pointwise::tanh:
      return f(Tanh{});
    default:
      f(Identity{});
  }
}

}  // namespace isobar::cpu::ISOBAR_ISA
