// Runs independent tasks on several threads, for reading and creating files. parallel_for does not fit: it makes ranges
// of equal length, and exceptions may not leave its OpenMP region.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace isobar {

// Resolves a number of threads; 0: as many as the machine has cores.
inline int thread_count(int threads) {
  return threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// Calls task(i) once for each i in [0, n). After all threads have ended, rethrows the exception of the lowest i.
template <class F>
void parallel_tasks(std::int64_t n, int threads, const F& task) {
  std::atomic<std::int64_t> upcoming{0};
  std::mutex mutex;
  std::exception_ptr error;
  std::int64_t failed = n;
  const auto work = [&] {
    for (std::int64_t i = upcoming++; i < n; i = upcoming++) {
      try {
        task(i);
      } catch (...) {
        const std::lock_guard guard(mutex);
        if (i < failed) {
          failed = i;
          error = std::current_exception();
        }
        upcoming = n;
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (std::int64_t t = 1; t < std::min<std::int64_t>(thread_count(threads), n); ++t) helpers.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace isobar
