// normalize and denormalize on the CPU: a plane of the grid at a time.
#include "kernels/normalize.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {

void normalize(const NormalizeArgs& a) {
  const std::int64_t pixels = a.height * a.width, planes = a.channels + a.extra;
  visit_accumulator(a.dtype, [&]<class Real>(Type<Real>) {
    parallel_for(a.batch * planes, kGrain / (pixels + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const std::int64_t b = plane / planes, c = plane % planes;
        Real* y = static_cast<Real*>(a.y) + plane * pixels;
        if (c < a.channels) {
          const float* x = a.x + (b * a.channels + c) * pixels;
          const Real mean = static_cast<Real>(a.mean[c]), std = static_cast<Real>(a.std[c]);
#pragma omp simd
          for (std::int64_t i = 0; i < pixels; ++i) y[i] = (static_cast<Real>(x[i]) - mean) / std;
        } else {
          const Real value = static_cast<Real>(a.planes[b * a.extra + c - a.channels]);
          for (std::int64_t i = 0; i < pixels; ++i) y[i] = value;
        }
      }
    });
  });
}

void denormalize(const DenormalizeArgs& a) {
  const std::int64_t pixels = a.height * a.width;
  visit_accumulator(a.dtype, [&]<class Real>(Type<Real>) {
    parallel_for(a.batch * a.channels, kGrain / (pixels + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const Real* x = static_cast<const Real*>(a.x) + plane * pixels;
        float* y = a.y + plane * pixels;
        const std::int64_t c = plane % a.channels;
        const Real mean = static_cast<Real>(a.mean[c]), std = static_cast<Real>(a.std[c]);
#pragma omp simd
        for (std::int64_t i = 0; i < pixels; ++i) y[i] = static_cast<float>(x[i] * std + mean);
      }
    });
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(normalize, NormalizeArgs)
ISOBAR_CPU_KERNEL(denormalize, DenormalizeArgs)
