// The parts that command lines share: threads of ranks, validators of numbers, ranges of steps or dates.
#include "apps/config_options.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "apps/step_range.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

// What a validator says of a word; "": it fits.
std::string said(CLI::Validator validator, std::string word) {
  return validator(word);
}

}  // namespace

TEST_CASE("command lines: ranks of a process share its threads, one each at least, unless a flag says how many") {
  ConfigOptions options;
  const int all = omp_get_max_threads();
  CHECK(options.threads_of(1) == all);
  CHECK(options.threads_of(2) == std::max(1, all / 2));
  CHECK(options.threads_of(100000) == 1);
  options.threads = 5;
  CHECK(options.threads_of(1) == 5);
  CHECK(options.threads_of(100000) == 5);
}

TEST_CASE("command lines: numbers on their bounds fit, and what does not is named") {
  for (const char* whole : {"3", "4", "9223372036854775807"}) CHECK(said(whole_number_from(3), whole).empty());
  for (const std::string none : {"2", "-3", "3.5", "x", "3x", ""})
    CHECK(said(whole_number_from(3), none) == none + " is not a whole number from 3 on");
  for (const char* above : {"1e-300", "2"}) CHECK(said(number_above(0), above).empty());
  for (const std::string none : {"0", "-1", "x"})
    CHECK(said(number_above(0), none) == "must be a number above 0, not " + none);
  for (const char* between : {"0.5", "0.75", "1"}) CHECK(said(number_between(0.5, 1), between).empty());
  for (const std::string none : {"0.4999", "1.0001", "x"})
    CHECK(said(number_between(0.5, 1), none) == "must be a number from 0.5 to 1, not " + none);
}

TEST_CASE("command lines: a range is of two steps or of two dates") {
  CHECK(range_of("--range", {"3", "7"}) == RangeValue(std::array<std::int64_t, 2>{3, 7}));
  CHECK(range_of("--range", {"2001-01-01", "2001-02"}) ==
        RangeValue(std::array<std::string, 2>{"2001-01-01", "2001-02"}));
  CHECK_THROWS_WITH(range_of("--train-range", {"3", "2001-01-01"}),
                    "--train-range 3 2001-01-01 is a step and a date; expected two steps or two dates");
  CHECK_THROWS_WITH(range_of("--range", {"2001-01-01", "3"}),
                    "--range 2001-01-01 3 is a step and a date; expected two steps or two dates");
}

}  // namespace isobar::testing
