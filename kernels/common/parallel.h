// The one way CPU kernels use threads. parallel_for splits [0, n) into contiguous ranges, one a thread, at least
// `grain` long; the split depends on n, grain and the number of threads only, never on timing.
#pragma once

#include <omp.h>

#include <cstdint>

namespace isobar {

template <class F>
inline __attribute__((always_inline)) void parallel_for(std::int64_t n, std::int64_t grain, const F& body) {
  if (n <= 0) return;
  std::int64_t parts = (n + grain - 1) / grain;
  const std::int64_t threads = omp_get_max_threads();
  if (parts > threads) parts = threads;
  if (parts <= 1) {
    body(std::int64_t{0}, n);
    return;
  }
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(parts))
  for (std::int64_t part = 0; part < parts; ++part) body(n * part / parts, n * (part + 1) / parts);
}

}  // namespace isobar
