// pointwise on the CPU: one loop a kind, which the compiler vectorises.
#include "kernels/pointwise.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/pointwise.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

template <class Kind, class T>
void forward(const PointwiseFwdArgs& a) {
  using Acc = accumulator_t<T>;
  const T* x = static_cast<const T*>(a.x);
  T* y = static_cast<T*>(a.y);
  parallel_for_elements(a.n, kGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) y[i] = convert<T>(Kind::value(convert<Acc>(x[i])));
  });
}

template <class Kind, class T>
void backward(const PointwiseBwdArgs& a) {
  using Acc = accumulator_t<T>;
  const T* dy = static_cast<const T*>(a.dy);
  const T* y = static_cast<const T*>(a.y);
  T* dx = static_cast<T*>(a.dx);
  parallel_for_elements(a.n, kGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i)
      dx[i] = convert<T>(convert<Acc>(dy[i]) * Kind::slope(convert<Acc>(y[i])));
  });
}

}  // namespace

void pointwise_fwd(const PointwiseFwdArgs& a) {
  visit_floating(a.dtype,
                 [&]<class T>(Type<T>) { visit_pointwise(a.kind, [&]<class Kind>(Kind) { forward<Kind, T>(a); }); });
}

void pointwise_bwd(const PointwiseBwdArgs& a) {
  visit_floating(a.dtype,
                 [&]<class T>(Type<T>) { visit_pointwise(a.kind, [&]<class Kind>(Kind) { backward<Kind, T>(a); }); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(pointwise_fwd, PointwiseFwdArgs)
ISOBAR_CPU_KERNEL(pointwise_bwd, PointwiseBwdArgs)
