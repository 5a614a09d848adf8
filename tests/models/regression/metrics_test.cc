// How a regression is judged: results worked out by hand, sums that add up, what is refused.
#include "models/regression/metrics.h"

#include <string>
#include <utility>
#include <vector>

#include "tests/harness/testing.h"

using namespace isobar;
using testing::Approx, testing::ContainsSubstring;

namespace {

// Two samples of two channels with two points, of one channel.
const std::vector<double> kTarget{1, 3, 0, 2, 5, 7, 4, 2}, kPrediction{1, 1, 1, 2, 5, 8, 4, 4}, kInput{2, 3, 5, 5};

}  // namespace

TEST_CASE("regression: squared and absolute errors, beside those of the input and of the best constants") {
  RegressionMetrics metrics(1, 2);
  metrics.begin();
  metrics.add(kPrediction, kTarget, kInput, 2);
  CHECK(metrics.loss() == (4 + 1 + 1 + 4) / 8.0);
  CHECK(metrics.l1(0) == (2 + 1) / 4.0);
  CHECK(metrics.l1(1) == (1 + 2) / 4.0);
  CHECK(metrics.input_loss() == (1 + 4) / 4.0);               // of the only channel that it has
  CHECK(metrics.constant_loss() == Approx((5.0 + 2.0) / 2));  // variances of 1 3 5 7 and of 0 2 4 2
  const Report report = metrics.report(DataSplit::valid);
  CHECK(report.table ==
        "Errors on the validation set\n"
        " channel    squared   absolute\n"
        "      c0       1.25       0.75\n"
        "      c1       1.25       0.75\n"
        "     all       1.25\n"
        "   input       1.25\n"
        "constant        3.5");
  CHECK(report.scalars == std::vector<std::pair<std::string, double>>{{"L1/valid", 0.75}});
  REQUIRE(report.line.size() == 4);
  CHECK(report.line[2].name == "input_loss");
  CHECK(report.line[2].value == metrics.input_loss());
  CHECK(report.line[3].name == "constant_loss");
  CHECK(report.summary[3].name == "val_constant_loss");
  CHECK(metrics.report(DataSplit::test).summary[2].name == "test_input_loss");
  REQUIRE(report.summary.size() == 4);
  CHECK(report.summary[1].name == "val_l1");
  CHECK(report.summary[1].part == "c1");
  CHECK(report.summary[1].value == metrics.l1(1));
  CHECK(report.sentence == "Mean squared error 1.25; of the input itself 1.25, of the best constant 3.5");
}

TEST_CASE("regression: the sums of two parts are those of the whole, and a new pass begins anew") {
  RegressionMetrics whole(1, 2), parts(1, 2), second(1, 2);
  whole.add(kPrediction, kTarget, kInput, 2);
  const auto half = [](const std::vector<double>& values, std::size_t part) {
    return std::span(values).subspan(part * values.size() / 2, values.size() / 2);
  };
  parts.add(half(kPrediction, 0), half(kTarget, 0), half(kInput, 0), 1);
  second.add(half(kPrediction, 1), half(kTarget, 1), half(kInput, 1), 1);
  second.add({}, {}, {}, 0);
  for (std::size_t i = 0; i < parts.sums()[0].size(); ++i) parts.sums()[0][i] += second.sums()[0][i];
  CHECK(std::ranges::equal(parts.sums()[0], whole.sums()[0]));
  whole.begin();
  whole.add(half(kPrediction, 1), half(kTarget, 1), half(kInput, 1), 1);
  CHECK(whole.loss() == second.loss());
}

TEST_CASE("regression: batches that do not fit are refused") {
  RegressionMetrics metrics(1, 2);
  CHECK_THROWS_WITH(metrics.add(kInput, kTarget, kInput, 2),
                    "a batch of 2 has 4 values of the prediction, 8 of the target and 4 of the input");
  CHECK_THROWS_WITH(metrics.add(kPrediction, kTarget, kTarget, 2), ContainsSubstring("8 of the input"));
}
