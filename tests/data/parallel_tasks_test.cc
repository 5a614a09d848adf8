// Tasks on several threads: each runs once, and the exception of the first that fails is the caller's.
#include "data/parallel_tasks.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("parallel tasks: each runs once, on as many threads as asked for at most") {
  CHECK(thread_count(3) == 3);
  CHECK(thread_count(1) == 1);
  CHECK(thread_count(0) >= 1);
  for (const int threads : {0, 1, 3, 50})
    for (const std::int64_t n : {0, 1, 2, 40}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(n));
      std::mutex mutex;
      std::set<std::thread::id> ids;
      parallel_tasks(n, threads, [&](std::int64_t i) {
        ++runs[static_cast<std::size_t>(i)];
        const std::lock_guard guard(mutex);
        ids.insert(std::this_thread::get_id());
      });
      for (const std::atomic<int>& count : runs) CHECK(count == 1);
      CHECK(static_cast<int>(ids.size()) <= thread_count(threads));
      if (threads == 1 && n > 0) CHECK(ids == std::set{std::this_thread::get_id()});
    }
}

TEST_CASE("parallel tasks: three threads are at work at once") {
  std::atomic<int> here{0};
  parallel_tasks(3, 3, [&](std::int64_t) {
    ++here;
    while (here < 3) std::this_thread::yield();
  });
  CHECK(here == 3);
}

TEST_CASE("parallel tasks: the first task that fails is told, and none begins after it") {
  for (const int threads : {1, 4}) {
    std::atomic<int> begun{0};
    std::string told;
    try {
      parallel_tasks(1000, threads, [&](std::int64_t i) {
        ++begun;
        if (i >= 2) throw std::runtime_error("task " + std::to_string(i));
      });
    } catch (const std::runtime_error& error) {
      told = error.what();
    }
    CHECK(told == "task 2");
    CHECK(begun <= 2 + threads);
  }
}
