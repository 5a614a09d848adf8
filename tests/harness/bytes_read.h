// The bytes that this process has read from files, as counted by the system.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

namespace isobar::testing {

// So far; none if the system does not report it.
inline std::optional<std::int64_t> bytes_read() {
  std::ifstream file("/proc/self/io");
  for (std::string word; file >> word;) {
    std::int64_t count = 0;
    if (word == "rchar:" && file >> count) return count;
  }
  return std::nullopt;
}

// By `body`, without the bytes that the measurement itself reads.
inline std::int64_t bytes_read_by(const std::function<void()>& body) {
  const std::int64_t asked = *bytes_read(), before = *bytes_read();
  body();
  return *bytes_read() - before - (before - asked);
}

}  // namespace isobar::testing
