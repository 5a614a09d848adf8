// What the exit status of the tests says about test cases that cannot run here (tests/harness/main.cc).
#include <string>

#include "tests/harness/hidden_cases.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

TEST_CASE("a case that is skipped", "[.skipping]") {
  ISOBAR_SKIP("it always is");
}

TEST_CASE("a case that passes", "[.skipping]") {
  CHECK(true);
}

TEST_CASE("a case that fails, and says that it is skipped", "[.skipping]") {
  CHECK(false);
  ISOBAR_SKIP("SKIPPED HERE");
}

using testing::status_of_cases;

TEST_CASE("only what is skipped alone is reported as skipped, and a failure never") {
  CHECK(status_of_cases("a case that is skipped") == 77);
  CHECK(status_of_cases("a case that passes") == 0);
  CHECK(status_of_cases("a case that is skipped,a case that passes") == 0);
  for (const char* failing : {"a case that fails*", "a case that is skipped,a case that fails*"})
    CHECK(testing::fails(failing));
}

}  // namespace
}  // namespace isobar
