// kernels/common/number_text.h: which texts are numbers.
#include "kernels/common/number_text.h"

#include <cstdint>
#include <limits>

#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("number text: a number is all of its text, and fits") {
  CHECK(number_from<std::int64_t>("0") == 0);
  CHECK(number_from<std::int64_t>("007") == 7);
  CHECK(number_from<std::int64_t>("-12") == -12);
  CHECK(number_from<std::int64_t>("9223372036854775807") == std::numeric_limits<std::int64_t>::max());
  CHECK(number_from<double>("-2.5e-3") == -0.0025);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "x1", "1.0", "9223372036854775808", "0x10"})
    CHECK_FALSE(number_from<std::int64_t>(text));
  for (const char* text : {"", "1,5", "1.5 ", "1.5h", "1e999"}) CHECK_FALSE(number_from<double>(text));
  CHECK_FALSE(number_from<int>("2147483648"));
}
