// What a classifier's logits say of labelled samples.
#include <cmath>
#include <limits>

#include "engine/ops.h"
#include "engine/tape.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

Tensor matrix(std::int64_t rows, DType dtype, const std::vector<double>& values) {
  Tensor t = Tensor::empty({rows, static_cast<std::int64_t>(values.size()) / rows}, dtype, Device{});
  t.set_values(values);
  return t;
}

Tensor labels_of(const std::vector<double>& values) {
  Tensor t = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::i32, Device{});
  t.set_values(values);
  return t;
}

}  // namespace

TEST_CASE("class_predictions: the greatest logit and the loss of every row, worked out by hand") {
  // Probabilities are 1/4 and 3/4; 1/2, 1/3 and 1/6 would be a third class.
  const std::vector<double> logits{0, std::log(3), std::log(2), 0, 5, 5};
  for (const DType dtype : {DType::fp64, DType::fp32}) {
    const ClassPredictions got = class_predictions(matrix(3, dtype, logits), labels_of({0, 0, 1}));
    const std::vector<double> expected{std::log(4), std::log(1.5), std::log(2)}, losses = got.row_loss.to_vector();
    const double rounding = dtype == DType::fp64 ? 1e-15 : 2e-7;
    REQUIRE(losses.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(losses[i] - expected[i]) <= rounding);
    CHECK(std::abs(got.loss.to_vector()[0] - std::log(12) / 3) <= rounding);
    CHECK(got.prediction.dtype() == DType::i32);
    CHECK(got.prediction.to_vector() == std::vector<double>{1, 0, 0});  // of equal ones the first
  }
}

TEST_CASE("class_predictions: rows without a prediction") {
  const Tensor logits = matrix(3, DType::fp64, {1, kNone, 2, 1, 1, 2});
  const ClassPredictions got = class_predictions(logits, labels_of({0, kIgnoredLabel, 7}));
  CHECK(got.prediction.to_vector() == std::vector<double>{-1, -1, 1});
  const std::vector<double> losses = got.row_loss.to_vector();
  CHECK(std::isnan(losses[0]));  // a logit is NaN
  CHECK(losses[1] == 0);         // the row does not count
  CHECK(std::isnan(losses[2]));  // the label is no class
}

TEST_CASE("class_predictions: columns that are padding are no classes") {
  const Tensor logits = matrix(2, DType::fp64, {0, std::log(3), 99, 99, 1, 1, 99, 99});
  const ClassPredictions got = class_predictions(logits, labels_of({0, 2}), 2);
  CHECK(got.prediction.to_vector() == std::vector<double>{1, 0});
  CHECK(std::abs(got.row_loss.to_vector()[0] - std::log(4)) <= 1e-15);
  CHECK(std::isnan(got.row_loss.to_vector()[1]));  // the label is none
  for (const std::int64_t padding : {4, -1})
    CHECK_THROWS_WITH(class_predictions(logits, labels_of({0, 0}), padding),
                      concat("class_predictions: ", padding, " of 4 columns cannot be padding"));
}

TEST_CASE("class_predictions: nothing is recorded") {
  const Tensor values = matrix(1, DType::fp64, {1, 2}), gradient = Tensor::zeros({1, 2}, DType::fp64, Device{});
  const Tensor leaf = make_leaf(values, gradient);
  Tape tape;
  const TapeScope recording(tape);
  REQUIRE(leaf.tracked());
  REQUIRE(cross_entropy(leaf, labels_of({0})).tracked());
  const ClassPredictions got = class_predictions(leaf, labels_of({0}));
  CHECK_FALSE(got.loss.tracked());
  CHECK_FALSE(got.row_loss.tracked());
  CHECK_FALSE(got.prediction.tracked());
}

TEST_CASE("class_predictions names labels that do not fit") {
  const Tensor logits = matrix(2, DType::fp64, {1, 2, 3, 4});
  CHECK_THROWS_WITH(class_predictions(logits, labels_of({0})),
                    "class_predictions: labels [1] do not fit logits [2, 2]");
  CHECK_THROWS_WITH(class_predictions(logits.view({4}), labels_of({0, 0, 0, 0})),
                    "class_predictions: the matrix of logits [4] has 1 dimension, not 2");
  CHECK_THROWS_WITH(class_predictions(logits, Tensor::zeros({2}, DType::fp32, Device{})),
                    "class_predictions: the labels are fp32, not i32");
}
