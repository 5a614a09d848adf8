// Simulates a full disk: while it lives, this process can write no file beyond `bytes`.
#pragma once

#include <csignal>

#include "tests/harness/resource_limit.h"

namespace isobar::testing {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : limit_(RLIMIT_FSIZE, bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);  // write() then fails with EFBIG
  }
  ~FileSizeLimit() { std::signal(SIGXFSZ, handler_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  ResourceLimit limit_;
  void (*handler_)(int) = SIG_DFL;
};

}  // namespace isobar::testing
