// Catch2 2 (Debian 12) or 3 (Debian 13), and the one way to say that a test cannot run here.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
namespace isobar::testing {
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
}  // namespace isobar::testing
#else
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
namespace isobar::testing {
using Approx = Catch::Detail::Approx;
inline auto ContainsSubstring(const std::string& text) {
  return Catch::Matchers::Contains(text);
}
}  // namespace isobar::testing
#endif

// Ends the test case and makes ctest count it as skipped: tests/CMakeLists.txt looks for these words.
#define ISOBAR_SKIP(reason)             \
  do {                                  \
    WARN("SKIPPED HERE: " << (reason)); \
    return;                             \
  } while (0)
