// The only way in which CPU kernels use threads. parallel_for splits [0, n) into contiguous ranges of at least `grain`,
// one per thread. The split depends on n, grain and the number of threads only, never on timing.
#pragma once

#include <omp.h>

#include <cstdint>

#include "kernels/common/math.h"

namespace isobar {

// The number of elements that is worth a thread, in a kernel that does little more than read and write them. A kernel
// that computes more for each element divides it.
inline constexpr std::int64_t kGrain = 1 << 14;

// One thread and many run the same copy of the body's code: two copies could round differently.
template <class F>
__attribute__((noinline, noclone)) void run_range(const F& body, std::int64_t begin, std::int64_t end) {
  body(begin, end);
}

template <class F>
inline __attribute__((always_inline)) void parallel_for(std::int64_t n, std::int64_t grain, const F& body) {
  if (n <= 0) return;
  std::int64_t parts = ceil_div(n, grain);
  const std::int64_t threads = omp_get_max_threads();
  if (parts > threads) parts = threads;
  if (parts <= 1) {
    run_range(body, 0, n);
    return;
  }
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(parts))
  for (std::int64_t part = 0; part < parts; ++part) run_range(body, n * part / parts, n * (part + 1) / parts);
}

// The same for element-by-element loops. The vector part and the tail of a loop may round differently, so ranges begin
// at multiples of 1024: which part an element is in does not depend on the number of threads.
inline constexpr std::int64_t kElementBlock = 1024;

template <class F>
inline __attribute__((always_inline)) void parallel_for_elements(std::int64_t n, std::int64_t grain, const F& body) {
  const std::int64_t blocks = ceil_div(n, kElementBlock);
  parallel_for(blocks, ceil_div(grain, kElementBlock), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last = end * kElementBlock;
    body(begin * kElementBlock, last < n ? last : n);
  });
}

}  // namespace isobar
