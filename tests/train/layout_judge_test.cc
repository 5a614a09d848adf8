// What isobar check judges by, given what is right and what is wrong.
#include "apps/train/layout_judge.h"

#include <cmath>

#include "apps/train/layout_check.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using NamedValues = LayoutJudge::NamedValues;

constexpr double kRounding = 0x1p-8;

TEST_CASE("layout judge: an error of twice that of one rank and a rounding is the bound") {
  const NamedValues exact{{"a", {1, -2, 0.5}}, {"b", {4, 4}}}, serial{{"a", {1.25, -2, 0.5}}, {"b", {4, 4}}};
  const LayoutJudge judge(kRounding);
  const auto of_a = [&](double error) {
    NamedValues parallel = exact;
    parallel["a"][2] += error;
    return judge.worst(exact, serial, parallel);
  };
  CHECK(of_a(0).of_bound == 0);
  CHECK(of_a(0).compared == 2);
  const double bound = 2 * 0.25 + kRounding * 2;
  CHECK(std::abs(of_a(1.5 * 0.25).of_bound - 1.5 * 0.25 / bound) < 1e-12);
  CHECK(std::abs(of_a(0.25).difference - 0.125) < 1e-12);  // of the largest element
  CHECK(of_a(0.99 * bound).of_bound <= 1);
  CHECK(of_a(1.01 * bound).of_bound > 1);
  CHECK(of_a(3 * bound).tensor == "a");
  CHECK(of_a(std::nan("")).of_bound == INFINITY);
  const double nan = std::nan("");
  const NamedValues b_is_nan{{"a", {1, -2, 0.5}}, {"b", {4, nan}}}, c_follows{{"a", {1}}, {"b", {nan}}, {"c", {1}}};
  CHECK(!(judge.worst(exact, b_is_nan, b_is_nan).of_bound <= 1));  // one rank fails too: that excuses nothing
  CHECK(judge.worst(exact, b_is_nan, b_is_nan).tensor == "b");
  CHECK(!(judge.worst({{"a", {1}}, {"b", {1}}, {"c", {1}}}, c_follows, c_follows).of_bound <= 1));
  NamedValues parallel = exact;
  parallel["b"][0] += 2.5 * kRounding * 4;  // serial has no error there
  CHECK(judge.worst(exact, serial, parallel).tensor == "b");
  CHECK(std::abs(judge.worst(exact, serial, parallel).of_bound - 2.5) < 1e-12);
}

TEST_CASE("layout check: it passes where all four comparisons do") {
  const Deviation good{0, 1, "a"}, bad{0, 1.001, "a"}, unknown{0, std::nan(""), "a"};
  CHECK(LayoutCheck{good, good, good, good}.passed());
  for (const Deviation& wrong : {bad, unknown}) {
    CHECK(!LayoutCheck{wrong, good, good, good}.passed());
    CHECK(!LayoutCheck{good, wrong, good, good}.passed());
    CHECK(!LayoutCheck{good, good, wrong, good}.passed());
    CHECK(!LayoutCheck{good, good, good, wrong}.passed());
  }
}

TEST_CASE("layout check: four lines, of steps and of tensors") {
  const LayoutCheck check{.loss = {1e-16, 0.5, "", 3},
                          .norm = {2e-3, 1.25, "", 3},
                          .gradients = {0.25, 0.75, "head.weight", 55},
                          .weights = {3e-9, 2, "norm.bias", 54, 1}};
  CHECK(to_text(check) ==
        "loss       1.00e-16 of the largest element, 5.00e-01 of the bound, of 3 steps\n"
        "norm       2.00e-03 of the largest element, 1.25e+00 of the bound, of 3 steps\n"
        "gradients  2.50e-01 of the largest element, 7.50e-01 of the bound, at head.weight, of 55 tensors\n"
        "weights    3.00e-09 of the largest element, 2.00e+00 of the bound, at norm.bias, of 54 tensors; "
        "1 more are zero");
}

TEST_CASE("layout judge: in fp64 1e-12 of the largest element is the bound") {
  const LayoutJudge judge(0);
  const auto apart = [&](double error) { return judge.of_values("x", {8, 1}, {8, 1}, {8, 1 + error}, 8).of_bound; };
  CHECK(apart(0) == 0);
  CHECK(apart(7.9e-12) <= 1);
  CHECK(apart(8.1e-12) > 1);
}

TEST_CASE("layout judge: the biases of keys are measured by those of the queries") {
  const LayoutJudge judge(0);
  const NamedValues exact{{"k.bias", {1}}, {"h.k.bias", {1e-17}}, {"h.q.bias", {1}}};
  NamedValues parallel = exact;
  parallel["h.k.bias"][0] = -3e-17;
  CHECK(judge.worst(exact, exact, parallel).of_bound < 1e-3);
  parallel["h.k.bias"][0] = 3e-12;
  CHECK(judge.worst(exact, exact, parallel).tensor == "h.k.bias");
}

TEST_CASE("layout judge: where nothing can be compared there is no verdict") {
  const LayoutJudge judge(0);
  const NamedValues one{{"a", {1}}}, zero{{"a", {0}}}, other{{"a", {1}}, {"b", {1}}}, longer{{"a", {1, 2}}};
  CHECK_THROWS_WITH(judge.worst(zero, zero, zero),
                    ContainsSubstring("all 1 tensors are zero, so nothing was compared"));
  CHECK_THROWS_WITH(judge.worst(zero, zero, one), ContainsSubstring("a: all numbers of one rank are zero"));
  const NamedValues some{{"a", {1}}, {"b", {0}}};
  CHECK(judge.worst(some, some, some).compared == 1);
  CHECK(judge.worst(some, some, some).zero == 1);
  CHECK_THROWS_WITH(judge.worst({}, {}, {}), ContainsSubstring("0 tensors"));
  CHECK_THROWS_WITH(judge.worst(one, one, other), ContainsSubstring("2 of the layout cannot be compared"));
  CHECK_THROWS_WITH(judge.worst(one, one, longer), ContainsSubstring("a: 1 numbers in fp64, 1 of one rank and 2"));
  CHECK_THROWS_WITH(judge.of_values("loss", {}, {}, {}, 1), ContainsSubstring("loss: 0 numbers"));
}

}  // namespace
}  // namespace isobar
