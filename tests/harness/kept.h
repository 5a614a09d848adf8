// What a call keeps that it should give back: memory of the heap and open files.
#pragma once

#include <malloc.h>

#include <cstddef>
#include <filesystem>
#include <iterator>

namespace isobar::testing {

struct Kept {
  std::ptrdiff_t bytes = 0, files = 0;
};

// By `calls` calls, after as many that may fill caches. A sanitizer's heap tells nothing: 0 bytes.
template <class Call>
Kept kept_by(int calls, const Call& call) {
  const auto bytes = [] {
    const struct mallinfo2 heap = mallinfo2();
    return static_cast<std::ptrdiff_t>(heap.uordblks + heap.hblkhd);
  };
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  for (int i = 0; i < calls; ++i) call();
  const std::ptrdiff_t files_before = files(), before = bytes();
  for (int i = 0; i < calls; ++i) call();
  const std::ptrdiff_t after = bytes();
  return {.bytes = after - before, .files = files() - files_before};
}

}  // namespace isobar::testing
