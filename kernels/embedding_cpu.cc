// embedding on the CPU. The backward deals the columns to threads: each walks over all ids in order, so the sums do not
// depend on the number of threads, and a frequent id is no more work for one thread than for another.
#include "kernels/embedding.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

constexpr std::int64_t kColumnUnit = 16;  // columns that stay with one thread: a cache line of fp32

template <class T, class Y>
void forward(const EmbeddingFwdArgs& a) {
  const T* table = static_cast<const T*>(a.table);
  Y* y = static_cast<Y*>(a.y);
  parallel_for(a.ids_count, kGrain / (a.cols + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t m = begin; m < end; ++m) {
      const std::int64_t row = a.ids[m] - a.first;
      Y* to = y + m * a.cols;
      if (row < 0 || row >= a.rows) {
        for (std::int64_t c = 0; c < a.cols; ++c) to[c] = convert<Y>(0.0f);
      } else {
        const T* from = table + row * a.cols;
        for (std::int64_t c = 0; c < a.cols; ++c) to[c] = convert<Y>(from[c]);
      }
    }
  });
}

template <class Y>
void backward(const EmbeddingBwdArgs& a) {
  using Acc = accumulator_t<Y>;
  const Y* dy = static_cast<const Y*>(a.dy);
  Acc* dtable = static_cast<Acc*>(a.dtable);
  const std::int64_t units = ceil_div(a.cols, kColumnUnit);
  const std::int64_t work = (a.ids_count + a.rows) * kColumnUnit;
  parallel_for(units, kGrain / (work + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kColumnUnit, last = end * kColumnUnit < a.cols ? end * kColumnUnit : a.cols;
    if (a.mode == Grad::overwrite)
      for (std::int64_t row = 0; row < a.rows; ++row)
        for (std::int64_t c = first; c < last; ++c) dtable[row * a.cols + c] = 0;
    for (std::int64_t m = 0; m < a.ids_count; ++m) {
      const std::int64_t row = a.ids[m] - a.first;
      if (row < 0 || row >= a.rows) continue;
      const Y* from = dy + m * a.cols;
      Acc* to = dtable + row * a.cols;
#pragma omp simd
      for (std::int64_t c = first; c < last; ++c) to[c] += convert<Acc>(from[c]);
    }
  });
}

}  // namespace

void embedding_fwd(const EmbeddingFwdArgs& a) {
  check_embedding(a);
  visit_floating(a.dtype, [&]<class T>(Type<T>) {
    if (a.y_dtype == a.dtype)
      forward<T, T>(a);
    else
      forward<T, float>(a);
  });
}

void embedding_bwd(const EmbeddingBwdArgs& a) {
  visit_floating(a.y_dtype, [&]<class Y>(Type<Y>) { backward<Y>(a); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(embedding_fwd, EmbeddingFwdArgs)
ISOBAR_CPU_KERNEL(embedding_bwd, EmbeddingBwdArgs)
