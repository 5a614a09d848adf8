// Out of memory at any allocation gives std::bad_alloc, and never ends the process from a function that may not throw.
//
// The operators new and delete are defined here and take the place of the library's in this program.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>

#include "engine/files/atomic_file.h"
#include "engine/files/checkpoint.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "tests/harness/resource_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace {
std::atomic<long> left_before_failure{-1};  // allocations that still succeed; -1: all do
}

void* operator new(std::size_t bytes) {
  const long left = left_before_failure.load(std::memory_order_relaxed);
  void* memory = left == 0 ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  if (left > 0) left_before_failure = left - 1;
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace isobar {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

enum End { kDone = 0, kBadAlloc = 3, kError = 4 };

// Runs `work` in a child process whose allocations fail from the n-th on; how it ends.
template <class Work>
int end_of(long n, const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    int end = kDone;
    left_before_failure = n;
    try {
      work();
    } catch (const std::bad_alloc&) {
      end = kBadAlloc;
    } catch (const Error&) {
      end = kError;
    }
    ::_exit(end);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Fails every allocation of `work` in turn, until it comes through; expects no other end than an exception.
template <class Work>
void fail_each_allocation_of(const Work& work) {
  for (long n = 0;; ++n) {
    const int end = end_of(n, work);
    INFO("allocation " << n);
    REQUIRE((end == kDone || end == kBadAlloc || end == kError));
    if (end == kDone) break;
    REQUIRE(n < 5000);
  }
}

TEST_CASE("memory is freed where there is none left", "[storage]") {
  CHECK(end_of(-1, [] {
          auto* storage = new Storage(1 << 20, Device{});
          left_before_failure = 0;
          delete storage;
        }) == kDone);
}

std::size_t address_space_in_use() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_CASE("freed blocks go back to the system before a new one is said not to fit", "[storage]") {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const auto ask_for = [](std::size_t bytes) {
    return end_of(-1, [&] {
      // Both are pooled. One goes back for the new block in any case: pool and use may exceed the most that was ever in
      // use by a quarter. The other one is kept by that rule.
      { const Storage one(256 * kMiB, Device{}), other(256 * kMiB, Device{}); }
      const testing::ResourceLimit limit(RLIMIT_AS, address_space_in_use() + 16 * kMiB);
      const Storage larger(bytes, Device{});
      std::memset(larger.data(), 1, bytes);
    });
  };
  CHECK(ask_for(300 * kMiB) == kDone);
  CHECK(ask_for(600 * kMiB) == kError);
}

TEST_CASE("a checkpoint is saved and found, or memory runs out by an exception", "[checkpoint]") {
  const TemporaryFolder run;
  const auto write = [](const fs::path& folder) { write_file_atomically(folder / "state.json", "{}"); };
  fail_each_allocation_of([&] {
    CheckpointStore store(run.path(), 1);
    store.save(1, write);
    store.save(2, write);
  });
  CHECK(find_newest_whole(run.path()).checkpoint->step == 2);
  fail_each_allocation_of([&] { find_newest_whole(run.path()); });
}

}  // namespace
}  // namespace isobar
