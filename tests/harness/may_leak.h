// While it lives, LeakSanitizer forgives memory that this thread allocates and loses. The HDF5 library loses what it
// could not write to a full disk.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define ISOBAR_HAS_LEAK_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ISOBAR_HAS_LEAK_SANITIZER
#endif
#endif

#ifdef ISOBAR_HAS_LEAK_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif

namespace isobar::testing {

class MayLeak {
 public:
#ifdef ISOBAR_HAS_LEAK_SANITIZER
  MayLeak() {
    __lsan_disable();
  }
  ~MayLeak() {
    __lsan_enable();
  }
#else
  MayLeak() {}
  ~MayLeak() {}
#endif
  MayLeak(const MayLeak&) = delete;
  MayLeak& operator=(const MayLeak&) = delete;
};

}  // namespace isobar::testing
