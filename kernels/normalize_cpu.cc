// normalize and denormalize on the CPU: a plane of the grid at a time.
#include "kernels/normalize.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {

namespace {

template <class Real>
void normalize_plane(const float* x, Real mean, Real std, std::int64_t pixels, Real* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < pixels; ++i) y[i] = (static_cast<Real>(x[i]) - mean) / std;
}

// The same; missing points are `fill`.
template <class Real>
void fill_plane(const float* x, Real mean, Real std, Real fill, std::int64_t pixels, Real* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < pixels; ++i) {
    const Real value = x[i] == x[i] ? static_cast<Real>(x[i]) : fill;
    y[i] = (value - mean) / std;
  }
}

template <class Real>
void mask_plane(const float* x, std::int64_t pixels, Real* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < pixels; ++i) y[i] = x[i] == x[i] ? Real(1) : Real(0);
}

// Plane c of sample b of the output.
template <class Real>
void write_plane(const NormalizeArgs& a, std::int64_t b, std::int64_t c, Real* y) {
  const std::int64_t pixels = a.height * a.width, mask = c - a.channels, extra = mask - a.mask_count;
  const float* x = a.x + b * a.channels * pixels;
  if (mask < 0) {
    const Real mean = static_cast<Real>(a.mean[c]), std = static_cast<Real>(a.std[c]);
    if (a.fill == nullptr)
      normalize_plane(x + c * pixels, mean, std, pixels, y);
    else
      fill_plane(x + c * pixels, mean, std, static_cast<Real>(a.fill[c]), pixels, y);
  } else if (extra < 0) {
    mask_plane(x + a.masks[mask] * pixels, pixels, y);
  } else {
    const Real value = static_cast<Real>(a.planes[b * a.extra + extra]);
    for (std::int64_t i = 0; i < pixels; ++i) y[i] = value;
  }
}

}  // namespace

void normalize(const NormalizeArgs& a) {
  const std::int64_t pixels = a.height * a.width, planes = a.channels + a.mask_count + a.extra;
  visit_accumulator(a.dtype, [&]<class Real>(Type<Real>) {
    parallel_for(a.batch * planes, kGrain / (pixels + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane)
        write_plane(a, plane / planes, plane % planes, static_cast<Real*>(a.y) + plane * pixels);
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
