// elementwise on the CPU. Operands of mixed dtypes are converted in chunks to the arithmetic's type, which stay in the
// first-level cache, so that three dtypes an op do not need 64 loops.
#include "kernels/elementwise.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

constexpr std::int64_t kChunk = 1024;

// x[begin, begin + n) -> y[y_begin, ...), with conversion.
using Convert = void (*)(const void* x, std::int64_t begin, void* y, std::int64_t y_begin, std::int64_t n);

template <class From, class To>
void convert_range(const void* x, std::int64_t begin, void* y, std::int64_t y_begin, std::int64_t n) {
  const From* from = static_cast<const From*>(x) + begin;
  To* to = static_cast<To*>(y) + y_begin;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
}

Convert converter(DType from, DType to) {
  return visit_floating(from, [to]<class From>(Type<From>) {
    return visit_floating(to, []<class To>(Type<To>) -> Convert { return convert_range<From, To>; });
  });
}

// The type in which an op on these three computes: fp64 if any of them is.
DType accumulator_of(DType a, DType b, DType c) {
  return a == DType::fp64 || b == DType::fp64 || c == DType::fp64 ? DType::fp64 : DType::fp32;
}

// Sums of ranges in Acc: y[y_begin + i] = a[begin + i] + b[b_begin + i].
template <class Acc>
class Adder {
 public:
  Adder(DType a, DType b, DType y)
      : load_a_(converter(a, dtype_of<Acc>)),
        load_b_(converter(b, dtype_of<Acc>)),
        store_(converter(dtype_of<Acc>, y)),
        is_plain_(a == dtype_of<Acc> && b == a && y == a) {}

  void run(const void* a, const void* b, void* y, std::int64_t begin, std::int64_t b_begin, std::int64_t n) const {
    if (is_plain_)
      return add(static_cast<const Acc*>(a) + begin, static_cast<const Acc*>(b) + b_begin, static_cast<Acc*>(y) + begin,
                 n);
    alignas(64) Acc left[kChunk], right[kChunk];
    for (std::int64_t done = 0; done < n; done += kChunk) {
      const std::int64_t size = n - done < kChunk ? n - done : kChunk;
      load_a_(a, begin + done, left, 0, size);
      load_b_(b, b_begin + done, right, 0, size);
      add(left, right, left, size);
      store_(left, 0, y, begin + done, size);
    }
  }

 private:
  static void add(const Acc* a, const Acc* b, Acc* y, std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
  }

  Convert load_a_, load_b_, store_;
  bool is_plain_;
};

}  // namespace

void cast(const CastArgs& a) {
  const Convert convert = converter(a.x_dtype, a.y_dtype);
  parallel_for_elements(a.n, kGrain,
                        [&](std::int64_t begin, std::int64_t end) { convert(a.x, begin, a.y, begin, end - begin); });
}

void fill(const FillArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) {
    const T value = convert<T>(static_cast<accumulator_t<T>>(a.value));
    T* y = static_cast<T*>(a.y);
    parallel_for_elements(a.n, kGrain, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) y[i] = value;
    });
  });
}

void add(const AddArgs& a) {
  const DType acc = accumulator_of(a.a_dtype, a.b_dtype, a.y_dtype);
  visit_accumulator(acc, [&]<class Acc>(Type<Acc>) {
    const Adder<Acc> adder(a.a_dtype, a.b_dtype, a.y_dtype);
    parallel_for_elements(a.n, kGrain, [&](std::int64_t begin, std::int64_t end) {
      adder.run(a.a, a.b, a.y, begin, begin, end - begin);
    });
  });
}

void add_row(const AddRowArgs& a) {
  if (a.n <= 0) return;
  const DType acc = accumulator_of(a.x_dtype, a.row_dtype, a.y_dtype);
  visit_accumulator(acc, [&]<class Acc>(Type<Acc>) {
    const Adder<Acc> adder(a.x_dtype, a.row_dtype, a.y_dtype);
    parallel_for_elements(a.groups * a.n, kGrain, [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {  // up to the end of begin's group
        const std::int64_t in_row = begin % a.n;
        const std::int64_t size = a.n - in_row < end - begin ? a.n - in_row : end - begin;
        adder.run(a.x, a.row, a.y, begin, in_row, size);
        begin += size;
      }
    });
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(cast, CastArgs)
ISOBAR_CPU_KERNEL(fill, FillArgs)
ISOBAR_CPU_KERNEL(add, AddArgs)
ISOBAR_CPU_KERNEL(add_row, AddRowArgs)
