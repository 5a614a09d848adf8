// Errors of system calls on files.
#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "kernels/common/check.h"

namespace isobar {

// Error: "PATH: cannot be WHAT", and why, from errno. what: a participle, "opened".
[[noreturn]] inline void fail_with_errno(const std::filesystem::path& path, const char* what) {
  throw_error(path.string(), ": cannot be ", what, ": ", std::strerror(errno));
}

}  // namespace isobar
