// Logits that ranks share, op by op beside the serial ops: ties and rows without a prediction, another label that is
// ignored, and what does not fit. tests/models/gpt/ranks_test.cc trains whole models.
#include "comm/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "comm/thread_ranks.h"
#include "engine/tape.h"
#include "tests/harness/error_of.h"
#include "tests/harness/findings.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::Findings;
using VocabValues = std::vector<double>;

// Twelve columns, of which the last two are no classes.
constexpr std::int64_t kVocabColumns = 12, kVocabClasses = 10;

Tensor vocab_tensor(Shape shape, const VocabValues& values, DType dtype = DType::fp64) {
  Tensor x = Tensor::empty(std::move(shape), dtype, Device{});
  x.set_values(values);
  return x;
}
Tensor vocab_labels(const VocabValues& values) {
  return vocab_tensor({std::ssize(values)}, values, DType::i32);
}

VocabValues vocab_columns(const VocabValues& all, const Part& own, std::int64_t columns) {
  VocabValues some;
  for (std::int64_t i = 0; i < std::ssize(all); ++i)
    if (i % columns >= own.begin && i % columns < own.end) some.push_back(all[static_cast<std::size_t>(i)]);
  return some;
}

VocabValues vocab_waves(std::int64_t n, double phase) {
  VocabValues values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(2 * std::sin(1.7 * static_cast<double>(i) + phase));
  return values;
}

void expect_vocab(Findings& findings, const VocabValues& got, const VocabValues& expected, const std::string& what) {
  findings.expect(got.size() == expected.size(), what + ": size");
  for (std::size_t i = 0; i < got.size() && i < expected.size(); ++i)
    findings.expect(std::isnan(expected[i]) ? std::isnan(got[i]) : std::abs(got[i] - expected[i]) <= 1e-13,
                    concat(what, ": element ", i, " is ", got[i], ", not ", expected[i]));
}

// d loss / d x of a scalar.
VocabValues vocab_gradient(const Tensor& values, const std::function<Tensor(const Tensor&)>& loss_of, double& loss) {
  const Tensor x = make_leaf(values, Tensor::zeros(values.shape(), DType::fp64, Device{}));
  Tape tape;
  Tensor y;
  {
    const TapeScope recording(tape);
    y = loss_of(x);
  }
  loss = y.item();
  tape.backward(y);
  return x.leaf()->grad.to_vector();
}

}  // namespace

TEST_CASE("vocabulary: ranks that share logits predict what one rank does") {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  VocabValues logits = vocab_waves(6 * kVocabColumns, 0);
  const auto at = [&](std::int64_t row, std::int64_t column) -> double& {
    return logits[static_cast<std::size_t>(row * kVocabColumns + column)];
  };
  at(0, 2) = at(0, 7) = at(0, 9) = 5;  // of equal ones the first, on whichever rank
  at(1, 5) = kNone;
  at(4, 9) = 7;    // the last class
  at(5, 11) = 99;  // is none
  const Tensor labels = vocab_labels({7, 1, kIgnoredLabel, 10, 9, 0});
  const ClassPredictions one =
      class_predictions(vocab_tensor({6, kVocabColumns}, logits), labels, kVocabColumns - kVocabClasses);
  CHECK(one.prediction.to_vector()[0] == 2);
  CHECK(one.prediction.to_vector()[1] == -1);
  CHECK(one.prediction.to_vector()[4] == 9);
  Findings findings;
  for (const int ranks : {1, 2, 3, 4, 8})
    run_ranks({.ranks = ranks}, [&](const Communicator& world) {
      const VocabPart part{part_of(kVocabColumns, world.rank(), ranks), kVocabClasses};
      const Tensor own = vocab_tensor({6, part.own.size()}, vocab_columns(logits, part.own, kVocabColumns));
      const ClassPredictions mine = vocab_predictions(own, labels, part, world);
      const std::string what = concat(ranks, " ranks, rank ", world.rank());
      findings.expect_values(mine.prediction, one.prediction.to_vector(), what + ", predictions");
      expect_vocab(findings, mine.row_loss.to_vector(), one.row_loss.to_vector(), what + ", losses");
      expect_vocab(findings, mine.loss.to_vector(), one.loss.to_vector(), what + ", their mean");
    });
  CHECK(findings.wrong() == "");
}

TEST_CASE("vocabulary: ranks share groups of 64 rows, or of so many fewer that each has one") {
  const auto group = [](std::int64_t rows, int ranks) {
    return vocab_group(rows, Parallel::imagined(0, {.tp = ranks}, "tp-cp-dp"));
  };
  CHECK(group(50304, 8) == 64);
  CHECK(group(128, 2) == 64);
  CHECK(group(65, 2) == 64);  // the second one has a single row
  CHECK(group(64, 2) == 32);
  CHECK(group(65, 3) == 32);
  CHECK(group(64, 3) == 16);
  CHECK(group(65, 4) == 16);
  CHECK(group(5, 4) == 1);
  CHECK(group(4, 4) == 1);
  CHECK(group(3, 2) == 2);
  CHECK(group(2, 2) == 1);
  CHECK(group(1, 1) == 64);
  CHECK(testing::error_of([&] { group(3, 4); }) ==
        "the 3 rows of a table of tokens are fewer than the 4 tensor-parallel ranks that share it");
}

TEST_CASE("vocabulary: any label may be the one that does not count") {
  constexpr std::int64_t kRows = 5, kWidth = 4;
  constexpr std::int32_t kIgnored = 3;
  const Tensor labels = vocab_labels({3, 0, 9, 3, 6});
  const VocabValues logits = vocab_waves(kRows * kVocabColumns, 1), x = vocab_waves(kRows * kWidth, 2),
                    table = vocab_waves(kVocabColumns * kWidth, 3);
  const HeadLossOptions options{.rows_at_a_time = 2, .ignore = kIgnored};
  double loss = 0, head_loss = 0;
  const VocabValues dlogits = vocab_gradient(
      vocab_tensor({kRows, kVocabColumns}, logits),
      [&](const Tensor& all) { return cross_entropy(all, labels, kIgnored, kVocabColumns - kVocabClasses); }, loss);
  const VocabValues dx = vocab_gradient(
      vocab_tensor({kRows, kWidth}, x),
      [&](const Tensor& rows) {
        const Tensor all = linear(rows, vocab_tensor({kVocabColumns, kWidth}, table), {}, {.out_dtype = DType::fp64});
        return cross_entropy(all, labels, kIgnored, kVocabColumns - kVocabClasses);
      },
      head_loss);
  Findings findings;
  for (const int ranks : {1, 2, 3})
    run_ranks({.ranks = ranks}, [&](const Communicator& world) {
      const Parallel parallel = Parallel::start(world, {.tp = ranks}, "tp");
      const VocabPart part{parallel.over_tp(kVocabColumns), kVocabClasses};
      const std::string what = concat(ranks, " ranks, rank ", world.rank());
      double mine = 0;
      const VocabValues own = vocab_gradient(
          vocab_tensor({kRows, part.own.size()}, vocab_columns(logits, part.own, kVocabColumns)),
          [&](const Tensor& columns) {
            return vocab_cross_entropy(columns, labels, kIgnored, part, {parallel.tp, Communicator()});
          },
          mine);
      expect_vocab(findings, {mine}, {loss}, what + ", the loss");
      expect_vocab(findings, own, vocab_columns(dlogits, part.own, kVocabColumns), what + ", its gradient");
      const Tensor rows_of_table =
          vocab_tensor({part.own.size(), kWidth},
                       VocabValues(table.begin() + part.own.begin * kWidth, table.begin() + part.own.end * kWidth));
      const VocabValues of_head = vocab_gradient(
          vocab_tensor({kRows, kWidth}, x),
          [&](const Tensor& rows) {
            return vocab_head_loss(rows, kRows, rows_of_table, labels, options, part, parallel);
          },
          mine);
      expect_vocab(findings, {mine}, {head_loss}, what + ", the loss of some rows at a time");
      expect_vocab(findings, of_head, dx, what + ", its gradient");
    });
  CHECK(findings.wrong() == "");
}

TEST_CASE("vocabulary: logits, labels and tables that do not fit are refused by their shapes") {
  const auto zeros = [](Shape shape, DType dtype = DType::fp64) {
    return Tensor::zeros(std::move(shape), dtype, Device{});
  };
  const auto labels_of = [](std::size_t count) { return vocab_labels(VocabValues(count)); };
  const Tensor labels = labels_of(4);
  const VocabPart five{{0, 5}, 10};
  const auto refusal = [&](const Tensor& logits, const Tensor& given, bool predicts) {
    return testing::error_of([&] {
      run_ranks({.ranks = 2}, [&](const Communicator& world) {
        if (predicts)
          vocab_predictions(logits, given, five, world);
        else
          vocab_cross_entropy(logits, given, kIgnoredLabel, five, {world, Communicator()});
      });
    });
  };
  for (const bool predicts : {false, true}) {
    const std::string op = predicts ? ": vocab_predictions: " : ": vocab_cross_entropy: ";
    const auto refused = [&](const Tensor& logits, const Tensor& given, const std::string& why) {
      const std::string sentence = refusal(logits, given, predicts);
      CHECK(sentence.substr(std::min<std::size_t>(6, sentence.size())) == op + why);  // behind "rank 0", or 1
    };
    refused(zeros({4, 5}), labels_of(3), "labels [3] do not fit logits [4, 5]");
    refused(zeros({4, 5}), zeros({4}, DType::fp32), "the labels are fp32, not i32");
    refused(zeros({4, 6}), labels, "logits [4, 6], and this rank has 5 rows of the table");
    refused(zeros({20}), labels, "the matrix of logits [20] has 1 dimension, not 2");
  }
  const auto of_head = [&](const Tensor& x, const Tensor& weight, const Tensor& given, std::int64_t rows) {
    return testing::error_of(
        [&] { vocab_head_loss(x, 4, weight, given, {.rows_at_a_time = rows}, five, Parallel::alone()); });
  };
  const Tensor x = zeros({4, 3}), weight = zeros({5, 3});
  CHECK(of_head(x, weight, labels, 1) == "");
  CHECK(of_head(x, weight, labels, 0) ==
        "vocab_head_loss: input [4, 3], weight [5, 3], labels [4] and 0 rows at a time do not fit");
  CHECK(of_head(x, zeros({5, 2}), labels, 1) ==
        "vocab_head_loss: input [4, 3], weight [5, 2], labels [4] and 1 rows at a time do not fit");
  CHECK(of_head(x, zeros({6, 3}), labels, 1) ==
        "vocab_head_loss: input [4, 3], weight [6, 3], labels [4] and 1 rows at a time do not fit");
  CHECK(of_head(x, weight, labels_of(5), 1) ==
        "vocab_head_loss: input [4, 3], weight [5, 3], labels [5] and 1 rows at a time do not fit");
  CHECK(of_head(x, zeros({5, 3}, DType::fp32), labels, 1) ==
        "vocab_head_loss: input [4, 3], weight [5, 3], labels [4] and 1 rows at a time do not fit");
}

}  // namespace isobar
