// What one process found in the data, on its way to those that do not look: every number, and what is not sent.
#include "models/forecast/findings.h"

#include <string>
#include <vector>

#include "tests/harness/testing.h"

namespace isobar::testing {

TEST_CASE("findings: statistics reach other processes bit for bit, but for the means over time") {
  ForecastFindings made;
  CHECK_FALSE(made.of_another_process);
  ComputedStatistics& statistics = made.statistics.emplace();
  statistics.means = {0.1, 1e300};
  statistics.stds = {1.0 / 3, 5e-324};
  statistics.time_diff_stds = {0.7, 2};
  statistics.time_means = {1, 2, 3, 4};
  statistics.never_there = {0, 1, 1, 0};
  statistics.labels = FieldLabels{{"t2m", "tp"}, {"K", ""}, 6, {1, 4}};
  const ForecastFindings found = ForecastFindings::unpack(made.pack());
  CHECK(found.of_another_process);
  REQUIRE(found.statistics);
  CHECK(found.statistics->means == statistics.means);
  CHECK(found.statistics->stds == statistics.stds);
  CHECK(found.statistics->time_diff_stds == statistics.time_diff_stds);
  CHECK(found.statistics->never_there == statistics.never_there);
  CHECK(found.statistics->time_means.empty());
  REQUIRE(found.statistics->labels);
  CHECK(found.statistics->labels->channel_names == statistics.labels->channel_names);
  CHECK(found.statistics->labels->units == statistics.labels->units);
  CHECK(found.statistics->labels->step_hours == 6);
  CHECK(found.statistics->labels->summed == std::vector<std::int64_t>{1, 4});

  statistics.labels.reset();
  CHECK_FALSE(ForecastFindings::unpack(made.pack()).statistics->labels);
  made.statistics.reset();
  const ForecastFindings none = ForecastFindings::unpack(made.pack());
  CHECK(none.of_another_process);
  CHECK_FALSE(none.statistics);
}

TEST_CASE("findings: no text is nothing found, and any other is refused") {
  const ForecastFindings none = ForecastFindings::unpack("");
  CHECK_FALSE(none.of_another_process);
  CHECK_FALSE(none.statistics);
  REQUIRE(none.catalog != nullptr);
  CHECK_THROWS_WITH(ForecastFindings::unpack("?"),
                    ContainsSubstring("what the first process found in the data cannot be read: "));
  const std::string whole = ForecastFindings().pack();
  CHECK_THROWS_WITH(ForecastFindings::unpack(whole.substr(0, whole.size() - 1)), ContainsSubstring("cannot be read: "));
}

}  // namespace isobar::testing
