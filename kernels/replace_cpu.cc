// replace on the CPU: one loop a dtype, which the compiler vectorises.
#include "kernels/replace.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

template <class T>
void replace_range(const T* x, const T* with, const std::int32_t* flags, T* y, std::int64_t n) {
  if (with == nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = flags[i] != 0 ? T(0) : x[i];
    return;
  }
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = flags[i] != 0 ? with[i] : x[i];
}

}  // namespace

void replace(const ReplaceArgs& a) {
  if (a.n <= 0) return;
  visit_floating(a.dtype, [&]<class T>(Type<T>) {
    const T* x = static_cast<const T*>(a.x);
    const T* with = static_cast<const T*>(a.with);
    T* y = static_cast<T*>(a.y);
    parallel_for_elements(a.groups * a.n, kGrain, [=, &a](std::int64_t begin, std::int64_t end) {
      while (begin < end) {  // up to the end of begin's group
        const std::int64_t in_group = begin % a.n;
        const std::int64_t size = a.n - in_group < end - begin ? a.n - in_group : end - begin;
        const T* values = with == nullptr ? nullptr : with + (a.with_row ? in_group : begin);
        replace_range(x + begin, values, a.flags + in_group, y + begin, size);
        begin += size;
      }
    });
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(replace, ReplaceArgs)
