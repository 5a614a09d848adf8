// The one way CPU kernels use threads. parallel_for splits [0, n) into contiguous ranges, one a thread, at least
// `grain` long; the split depends on n, grain and the number of threads only, never on timing.
#pragma once

#include <omp.h>

#include <cstdint>

namespace isobar {

// One copy of the body's code for one thread and for many: two copies could round differently.
template <class F>
__attribute__((noinline, noclone)) void run_range(const F& body, std::int64_t begin, std::int64_t end) {
  body(begin, end);
}

template <class F>
inline __attribute__((always_inline)) void parallel_for(std::int64_t n, std::int64_t grain, const F& body) {
  if (n <= 0) return;
  std::int64_t parts = (n + grain - 1) / grain;
  const std::int64_t threads = omp_get_max_threads();
  if (parts > threads) parts = threads;
  if (parts <= 1) {
    run_range(body, 0, n);
    return;
  }
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(parts))
  for (std::int64_t part = 0; part < parts; ++part) run_range(body, n * part / parts, n * (part + 1) / parts);
}

// The same for element-by-element loops: ranges begin at multiples of 1024, so that an element falls into the vector
// part or into the tail of a loop, which may round differently, whatever the number of threads.
inline constexpr std::int64_t kElementBlock = 1024;

template <class F>
inline __attribute__((always_inline)) void parallel_for_elements(std::int64_t n, std::int64_t grain, const F& body) {
  const std::int64_t blocks = (n + kElementBlock - 1) / kElementBlock;
  parallel_for(blocks, (grain + kElementBlock - 1) / kElementBlock, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last = end * kElementBlock;
    body(begin * kElementBlock, last < n ? last : n);
  });
}

}  // namespace isobar
