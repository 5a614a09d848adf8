// The metrics of a language model: a result worked out by hand, and sums that add up.
#include "models/language/metrics.h"

#include <cmath>

#include "kernels/cross_entropy.h"
#include "tests/harness/error_of.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

const auto kBytes = std::make_shared<const std::vector<std::int64_t>>(std::vector<std::int64_t>{1, 2, 4});

}  // namespace

TEST_CASE("language metrics: loss, perplexity, bits per byte and accuracy, over the targets that count") {
  LanguageMetrics metrics(kBytes);
  metrics.begin();
  metrics.add({std::log(2.0), 99, std::log(8.0)}, {1, 0, 0}, {1, kIgnoredLabel, 2});
  metrics.add({std::log(4.0)}, {0}, {0});
  CHECK(metrics.loss() == testing::Approx(std::log(4.0)));
  CHECK(metrics.perplexity() == testing::Approx(4));
  CHECK(metrics.bits_per_byte() == testing::Approx(6.0 / 7));  // 1 + 3 + 2 bits for 2 + 4 + 1 bytes
  CHECK(metrics.accuracy() == testing::Approx(2.0 / 3));
  const Report report = metrics.report(DataSplit::valid);
  CHECK(report.sentence == "Perplexity: 4.000, 0.857 bits per byte, 66.7 % of the tokens predicted");
  REQUIRE(report.summary.size() == 3);
  CHECK(report.summary[1].name == "val_bits_per_byte");
  CHECK(report.summary[2].name == "val_token_accuracy");
  CHECK(report.line[0].name == "perplexity");
  REQUIRE(report.scalars.size() == 3);
  CHECK(report.scalars[0].first == "Perplexity/valid");
  CHECK(report.scalars[1].first == "Bits per byte/valid");
  CHECK(report.scalars[2].first == "Token accuracy/valid");
  CHECK(report.scalars[2].second == metrics.accuracy());
  CHECK(report.table ==
        "On the validation set, 3 targets\n"
        "    loss           1.386294\n"
        "    perplexity     4.000000\n"
        "    bits per byte  0.857143");

  LanguageMetrics half(kBytes), other(kBytes);  // as two ranks have them
  half.add({std::log(2.0), 99, std::log(8.0)}, {1, 0, 0}, {1, kIgnoredLabel, 2});
  other.add({std::log(4.0)}, {0}, {0});
  for (std::size_t i = 0; i < half.sums()[0].size(); ++i) half.sums()[0][i] += other.sums()[0][i];
  CHECK(half.loss() == metrics.loss());
  CHECK(half.bits_per_byte() == metrics.bits_per_byte());
  metrics.begin();
  metrics.add({1}, {0}, {0});
  CHECK(metrics.loss() == 1);
}

TEST_CASE("language metrics: without bytes there are no bits per byte, and targets must be tokens") {
  LanguageMetrics metrics(nullptr);
  metrics.add({1}, {0}, {0});
  const Report report = metrics.report(DataSplit::test);
  CHECK(report.line.size() == 2);
  CHECK(report.summary[0].name == "test_perplexity");
  CHECK(report.table == "On the test set, 1 targets\n    loss           1.000000\n    perplexity     2.718282");
  CHECK(report.sentence == "Perplexity: 2.718, 100.0 % of the tokens predicted");
  LanguageMetrics sum(kBytes), part(kBytes);
  part.add({1, 2}, {0, 1}, {0, 2});
  sum.add({4}, {2}, {2});
  sum.add(part);
  CHECK(sum.loss() == 7.0 / 3);
  CHECK(sum.accuracy() == 2.0 / 3);
  CHECK(sum.bits_per_byte() == testing::Approx(7 / std::log(2.0) / (4 + 1 + 4)));
  LanguageMetrics known(kBytes);
  CHECK(testing::error_of([&] { known.add({1}, {0}, {3}); }) == "a target is token 3, which is not in the vocabulary");
  CHECK(testing::error_of([&] { known.add({1}, {0}, {-1}); }) ==
        "a target is token -1, which is not in the vocabulary");
  CHECK(testing::error_of([&] { metrics.add({1}, {0}, {-1}); }) ==
        "a target is token -1, which is not in the vocabulary");
  CHECK(testing::error_of([&] { known.add({1}, {0, 1}, {1}); }) == "1 losses and 2 predictions do not fit 1 targets");
  CHECK(testing::error_of([&] { known.add({1, 2}, {0}, {1}); }) == "2 losses and 1 predictions do not fit 1 targets");
}

}  // namespace isobar
