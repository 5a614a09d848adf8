// How a classifier is judged: results worked out by hand, sums that add up, what is refused.
#include "models/classification/metrics.h"

#include <algorithm>
#include <limits>

#include "tests/harness/testing.h"

using namespace isobar;
using testing::Approx, testing::ContainsSubstring;

namespace {

// Five samples of three classes: classes 0 and 2 are there, one of each is read wrongly.
struct Samples {
  std::vector<double> losses{0.5, 0.25, 1.5, 2, 0.125};
  std::vector<std::int32_t> predictions{0, 0, 1, 0, 2}, labels{0, 0, 0, 2, 2};
};

// Samples [first, last).
void add_part(ClassificationMetrics& metrics, const Samples& s, std::size_t first, std::size_t last) {
  const auto part = [&](const auto& all) {
    return std::decay_t<decltype(all)>(all.begin() + static_cast<std::ptrdiff_t>(first),
                                       all.begin() + static_cast<std::ptrdiff_t>(last));
  };
  metrics.add(part(s.losses), part(s.predictions), part(s.labels));
}

std::vector<double> values_of(ClassificationMetrics& metrics) {
  std::vector<double> values;
  for (const std::span<double> sums : metrics.sums()) values.insert(values.end(), sums.begin(), sums.end());
  return values;
}

}  // namespace

TEST_CASE("classification metrics: loss and accuracy are means over the samples") {
  ClassificationMetrics metrics(3);
  const Samples s;
  metrics.add(s.losses, s.predictions, s.labels);
  CHECK(metrics.loss() == 4.375 / 5);
  CHECK(metrics.accuracy() == 3.0 / 5);
  const Report report = metrics.report(DataSplit::valid);
  REQUIRE(report.line.size() == 1);
  CHECK(report.line[0].name == "accuracy");
  CHECK(report.line[0].part.empty());
  CHECK(report.line[0].value == 0.6);
  REQUIRE(report.summary.size() == 1);
  CHECK(report.summary[0].name == "val_accuracy");
  CHECK(report.summary[0].value == 0.6);
  CHECK(report.scalars == std::vector<std::pair<std::string, double>>{{"Accuracy/valid", 0.6}});
  CHECK(report.sentence == "Accuracy: 60.00 %, 2 of 5 read wrongly");
}

TEST_CASE("classification metrics: the table has a row for every class, seen or not") {
  ClassificationMetrics metrics(3);
  const Samples s;
  metrics.add(s.losses, s.predictions, s.labels);
  CHECK(metrics.report(DataSplit::valid).table ==
        "Accuracy on the validation set, and its loss\n"
        "   class  samples    right  accuracy\n"
        "       0        3        2   66.67 %\n"
        "       1        0        0       -\n"
        "       2        2        1   50.00 %\n"
        "     all        5        3   60.00 %\n"
        "    loss  0.875000");
}

TEST_CASE("classification metrics: the sums of two parts are those of the whole") {
  const Samples s;
  for (std::size_t cut = 0; cut <= s.labels.size(); ++cut) {
    ClassificationMetrics whole(3), first(3), second(3), batches(3);
    add_part(whole, s, 0, s.labels.size());
    add_part(first, s, 0, cut);
    add_part(second, s, cut, s.labels.size());
    add_part(batches, s, 0, cut);
    add_part(batches, s, cut, s.labels.size());
    const std::vector<double> other = values_of(second);
    std::size_t i = 0;
    for (const std::span<double> sums : first.sums())
      for (double& sum : sums) sum += other[i++];
    CHECK(values_of(first) == values_of(whole));
    CHECK(values_of(batches) == values_of(whole));
    CHECK(first.loss() == whole.loss());
    CHECK(first.report(DataSplit::valid).table == whole.report(DataSplit::valid).table);
  }
}

TEST_CASE("classification metrics: a second pass begins anew") {
  ClassificationMetrics metrics(3);
  const Samples s;
  metrics.add(s.losses, s.predictions, s.labels);
  metrics.begin();
  metrics.add({3}, {1}, {1});
  CHECK(metrics.loss() == 3);
  CHECK(metrics.accuracy() == 1);
}

TEST_CASE("classification metrics: a sample without a prediction is read wrongly") {
  ClassificationMetrics metrics(3);
  metrics.add({1, std::numeric_limits<double>::quiet_NaN()}, {0, -1}, {0, 1});
  CHECK(metrics.accuracy() == 0.5);
  CHECK(std::isnan(metrics.loss()));
}

TEST_CASE("classification metrics: labels beyond the classes and lists of other lengths are refused") {
  ClassificationMetrics metrics(3);
  CHECK_THROWS_WITH(metrics.add({1}, {0}, {3}), "a sample has the label 3, but the model knows 3 classes");
  CHECK_THROWS_WITH(metrics.add({1}, {-1}, {-1}), ContainsSubstring("has the label -1"));
  CHECK_THROWS_WITH(metrics.add({1, 2}, {0}, {0}), "2 losses and 1 predictions do not fit 1 labels");
  CHECK_THROWS_WITH(metrics.add({1}, {0, 0}, {0}), "1 losses and 2 predictions do not fit 1 labels");
}
