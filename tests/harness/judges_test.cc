// The checks that tests rely on fail when they must: Findings, and the budgets of golden comparisons.
#include "tests/harness/findings.h"
#include "tests/harness/golden_comparison.h"
#include "tests/harness/hidden_cases.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

constexpr double kYardstick = 1e-3;

// 100 numbers, each with this relative error.
void check_numbers_off_by(double share) {
  std::vector<double> expected, got;
  for (int i = 1; i <= 100; ++i) {
    expected.push_back(0.1 * i);
    got.push_back(0.1 * i * (1 + share));
  }
  check_budget("numbers", got, expected, kYardstick);
}

TEST_CASE("numbers beyond their budget", "[.must fail]") {
  check_numbers_off_by(2.5 * kYardstick);
}

TEST_CASE("numbers within their budget", "[.must fail]") {
  check_numbers_off_by(1.5 * kYardstick);
}

TEST_CASE("judges: a golden comparison allows twice the yardstick's error, and not two and a half times") {
  CHECK(fails("numbers beyond their budget"));
  CHECK(status_of_cases("numbers within their budget") == 0);
}

TEST_CASE("judges: Findings compare every element, and how many there are") {
  Tensor x = Tensor::empty({3}, DType::fp64, Device{});
  x.set_values({1, 2, 3});
  const auto wrong = [&](const std::vector<double>& expected) {
    Findings findings;
    findings.expect_values(x, expected, "x");
    return findings.wrong();
  };
  CHECK(wrong({1, 2, 3}).empty());
  CHECK(wrong({1, 2, 4}) == "x: element 2 of 3 is 3, not 4");
  CHECK(wrong({0, 2, 3}) == "x: element 0 of 3 is 1, not 0");
  CHECK(wrong({1, 2}) == "x: size");
  CHECK(wrong({1, 2, 3, 4}) == "x: size");
}

}  // namespace
}  // namespace isobar::testing
