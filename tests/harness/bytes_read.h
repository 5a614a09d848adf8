// The bytes that this process has read from files, as counted by the system.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>

namespace isobar::testing {

// So far; none if the system does not report it.
inline std::optional<std::int64_t> bytes_read() {
  const int file = ::open("/proc/self/io", O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::array<char, 24> text{};  // always as many bytes, so that each measurement reads what the one before read
  const ::ssize_t got = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  std::int64_t count = 0;
  if (got <= 0 || std::sscanf(text.data(), "rchar: %" SCNd64, &count) != 1) return std::nullopt;
  return count;
}

// By `body`, without the bytes that the measurement itself reads.
inline std::int64_t bytes_read_by(const std::function<void()>& body) {
  const std::int64_t asked = *bytes_read(), before = *bytes_read();
  body();
  return *bytes_read() - before - (before - asked);
}

}  // namespace isobar::testing
