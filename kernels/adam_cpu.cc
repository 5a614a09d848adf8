// adam on the CPU: one pass over the buffers; every byte moves once.
#include "kernels/adam.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

enum class Decay { none, l2, decoupled };

// The numbers of a step, in the type of the arithmetic.
template <class Real>
struct Step {
  Real grad_scale, beta1, beta2, one_minus_beta1, one_minus_beta2, step_size, root_bias2, eps, weight_decay, shrink;

  explicit Step(const AdamArgs& a)
      : grad_scale(static_cast<Real>(*a.grad_scale)),
        beta1(static_cast<Real>(a.beta1)),
        beta2(static_cast<Real>(a.beta2)),
        one_minus_beta1(static_cast<Real>(1 - a.beta1)),
        one_minus_beta2(static_cast<Real>(1 - a.beta2)),
        step_size(static_cast<Real>(a.lr / a.bias1)),
        root_bias2(static_cast<Real>(std::sqrt(a.bias2))),
        eps(static_cast<Real>(a.eps)),
        weight_decay(static_cast<Real>(a.weight_decay)),
        shrink(static_cast<Real>(a.lr * a.weight_decay)) {}
};

template <Decay kDecay, class Real>
void update(const Step<Real>& s, std::int64_t n, const Real* grad, Real* weight, Real* m, Real* v) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    Real g = grad[i] * s.grad_scale;
    Real w = weight[i];
    if constexpr (kDecay == Decay::decoupled) w -= s.shrink * w;
    if constexpr (kDecay == Decay::l2) g += s.weight_decay * w;
    const Real mean = s.beta1 * m[i] + s.one_minus_beta1 * g;
    const Real square = s.beta2 * v[i] + s.one_minus_beta2 * g * g;
    m[i] = mean;
    v[i] = square;
    weight[i] = w - s.step_size * (mean / (std::sqrt(square) / s.root_bias2 + s.eps));
  }
}

template <class Real>
void follow(Real rate, std::int64_t n, const Real* weight, Real* average) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) average[i] += rate * (weight[i] - average[i]);
}

template <class Real>
void update_range(const AdamArgs& a, const Step<Real>& step, Decay decay, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = end - begin;
  const Real* grad = static_cast<const Real*>(a.grad) + begin;
  Real* weight = static_cast<Real*>(a.weight) + begin;
  Real* m = static_cast<Real*>(a.m) + begin;
  Real* v = static_cast<Real*>(a.v) + begin;
  if (decay == Decay::none) update<Decay::none>(step, n, grad, weight, m, v);
  if (decay == Decay::l2) update<Decay::l2>(step, n, grad, weight, m, v);
  if (decay == Decay::decoupled) update<Decay::decoupled>(step, n, grad, weight, m, v);
  if (a.average != nullptr) follow(static_cast<Real>(a.average_rate), n, weight, static_cast<Real*>(a.average) + begin);
  if (a.compute == nullptr) return;
  visit_floating(a.compute_dtype, [&]<class T>(Type<T>) {
    T* compute = static_cast<T*>(a.compute) + begin;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) compute[i] = convert<T>(weight[i]);
  });
}

template <class Real>
void run(const AdamArgs& a) {
  const Step<Real> step(a);
  const Decay decay = a.weight_decay == 0 ? Decay::none : a.decoupled ? Decay::decoupled : Decay::l2;
  parallel_for_elements(a.n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const bool decays = begin < a.decay_end;
      // In blocks, so that the average and the compute copy read the weights from the cache.
      std::int64_t next = (begin / kElementBlock + 1) * kElementBlock;
      if (next > end) next = end;
      if (decays && next > a.decay_end) next = a.decay_end;
      update_range(a, step, decays ? decay : Decay::none, begin, next);
      begin = next;
    }
  });
}

}  // namespace

void adam(const AdamArgs& a) {
  if (*a.grad_scale == 0) return;
  visit_accumulator(a.dtype, [&]<class T>(Type<T>) { run<T>(a); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(adam, AdamArgs)
