// A limit of this process, and of those that it starts, while it lives.
#pragma once

#include <sys/resource.h>

namespace isobar::testing {

class ResourceLimit {
 public:
  // resource: RLIMIT_NOFILE, say.
  ResourceLimit(decltype(RLIMIT_NOFILE) resource, rlim_t most) : resource_(resource) {
    ::getrlimit(resource_, &before_);
    rlimit limit = before_;
    limit.rlim_cur = most;
    ::setrlimit(resource_, &limit);
  }
  ~ResourceLimit() { ::setrlimit(resource_, &before_); }
  ResourceLimit(const ResourceLimit&) = delete;
  ResourceLimit& operator=(const ResourceLimit&) = delete;

 private:
  decltype(RLIMIT_NOFILE) resource_;
  rlimit before_{};
};

}  // namespace isobar::testing
