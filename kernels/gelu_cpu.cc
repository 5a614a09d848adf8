// gelu on the CPU: both kinds, with a formula that keeps its relative accuracy for large negative x.
#include "kernels/gelu.h"

#include "kernels/cpu/gelu_gate.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

template <class Kind, class T>
void forward(const GeluFwdArgs& a) {
  using Acc = accumulator_t<T>;
  const T* x = static_cast<const T*>(a.x);
  T* y = static_cast<T*>(a.y);
  parallel_for_elements(a.n, kGrain / 2, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const Acc value = convert<Acc>(x[i]);
      y[i] = convert<T>(value * Kind::gate(value).value);
    }
  });
}

template <class Kind, class T>
void backward(const GeluBwdArgs& a) {
  using Acc = accumulator_t<T>;
  const T* dy = static_cast<const T*>(a.dy);
  const T* x = static_cast<const T*>(a.x);
  T* dx = static_cast<T*>(a.dx);
  parallel_for_elements(a.n, kGrain / 2, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const Acc value = convert<Acc>(x[i]);
      const Gate<Acc> gate = Kind::gate(value);
      dx[i] = convert<T>(convert<Acc>(dy[i]) * (gate.value + value * gate.slope));
    }
  });
}

}  // namespace

void gelu_fwd(const GeluFwdArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) {
    a.kind == Activation::gelu_tanh ? forward<GeluTanh, T>(a) : forward<GeluErf, T>(a);
  });
}

void gelu_bwd(const GeluBwdArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) {
    a.kind == Activation::gelu_tanh ? backward<GeluTanh, T>(a) : backward<GeluErf, T>(a);
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(gelu_fwd, GeluFwdArgs)
ISOBAR_CPU_KERNEL(gelu_bwd, GeluBwdArgs)
