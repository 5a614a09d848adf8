#include "engine/free_memory.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "engine/storage.h"

namespace isobar {

std::size_t free_memory_bytes() {
  const std::size_t limit = std::min(shared_memory_bytes(), process_memory_bytes());
  const std::size_t held = memory_bytes() + pooled_memory_bytes();
  std::size_t available = limit - std::min(limit, held);
  std::ifstream system("/proc/meminfo");
  for (std::string line; std::getline(system, line);) {
    std::size_t kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %zu kB", &kib) == 1) available = std::min(available, kib << 10);
  }
  return available;
}

}  // namespace isobar
