// Catch2 2 (Debian 12) or 3 (Debian 13), and the one way to skip a test that cannot run here.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
namespace isobar::testing {
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Matches;
}  // namespace isobar::testing
#else
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
namespace isobar::testing {
using Approx = Catch::Detail::Approx;
using Catch::Matchers::Matches;
inline auto ContainsSubstring(const std::string& text) {
  return Catch::Matchers::Contains(text);
}
}  // namespace isobar::testing
#endif

namespace isobar::testing {
void note_skip();  // tests/harness/main.cc: the running test case cannot run here
}

// Ends the test case, and makes ctest count it as skipped if none of its checks has failed.
#define ISOBAR_SKIP(reason)        \
  do {                             \
    WARN("skipped: " << (reason)); \
    isobar::testing::note_skip();  \
    return;                        \
  } while (0)
