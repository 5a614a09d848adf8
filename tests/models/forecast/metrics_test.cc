// How a validation is reported: every line, tag and column, of sums whose roots are known.
#include "models/forecast/metrics.h"

#include <array>
#include <cmath>

#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::Approx;
using testing::ContainsSubstring;

constexpr std::int64_t kPixels = 4;

// Two samples of two forecast channels, of which a third one is only given. Errors of u10: 0.5 and 1.5 of a normalised
// unit, of t2m: 1 and 1; persistence errs by 2 and by 0.5.
ForecastMetrics metrics_of(const FieldsInfo& info) {
  ForecastMetrics metrics(info, 2, kPixels);
  metrics.begin();
  metrics.add(std::array{1., 0., 0., 0., 4., 0., 0., 0.}, 0.2, 1);
  metrics.add(std::array{9., 0., 0., 0., 4., 0., 0., 0.}, 0.8, 1);
  for (int sample = 0; sample < 2; ++sample) metrics.add_persistence(std::array{16., 0., 0., 0., 1., 0., 0., 0.});
  return metrics;
}

FieldsInfo fields() {
  return {.channel_names = {"u10", "t2m", "orography"},
          .statistics = {.means = {0, 280, 0}, .stds = {3, 10, 1}},
          .row_weights = {1, 1},
          .latitudes = {},
          .longitudes = {},
          .units = {"m s**-1", "K", "m"}};
}

void check_figures(const std::vector<Figure>& found, const std::vector<Figure>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO(i << ": " << found[i].name << ' ' << found[i].part);
    CHECK(found[i].name == expected[i].name);
    CHECK(found[i].part == expected[i].part);
    CHECK(found[i].value == Approx(expected[i].value));
  }
}

TEST_CASE("forecast metrics: what a validation reports") {
  const FieldsInfo info = fields();
  const ForecastMetrics metrics = metrics_of(info);
  CHECK(metrics.loss() == Approx(0.5));
  const Report report = metrics.report(DataSplit::valid);
  const double u = std::sqrt(1.25);  // of both samples together; the mean of each one's root is 1
  check_figures(
      report.line,
      {{"rmse", "u10", u}, {"rmse", "t2m", 1}, {"persistence_rmse", "u10", 2}, {"persistence_rmse", "t2m", 0.5}});
  check_figures(report.summary, {{"val_rmse", "u10", u},
                                 {"val_rmse", "t2m", 1},
                                 {"persistence_rmse", "u10", 2},
                                 {"persistence_rmse", "t2m", 0.5},
                                 {"val_rmse_physical", "u10", 3 * u},
                                 {"val_rmse_physical", "t2m", 10},
                                 {"persistence_rmse_physical", "u10", 6},
                                 {"persistence_rmse_physical", "t2m", 5}});
  const std::vector<std::pair<std::string, double>> scalars{{"RMSE(u10m)/valid", 1}, {"RMSE(t2m)/valid", 1},
                                                            {"RMSE/u10", u},         {"RMSE of persistence/u10", 2},
                                                            {"RMSE/t2m", 1},         {"RMSE of persistence/t2m", 0.5}};
  REQUIRE(report.scalars.size() == scalars.size());
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    CHECK(report.scalars[i].first == scalars[i].first);
    CHECK(report.scalars[i].second == Approx(scalars[i].second));
  }
  REQUIRE(report.charts.size() == 2);
  CHECK(report.sentence == "RMSE (persistence): 128.0 % of it on average, u10 1.118 (2), t2m 1 (0.5)");
  CHECK(report.table ==
        "RMSE of the validation set: normalised, and in the variables' own units\n"
        "variable  forecast  persistence  ratio      forecast  persistence  unit\n"
        "u10         1.1180       2.0000    56%        3.3541       6.0000  m/s\n"
        "t2m         1.0000       0.5000   200%        10.000        5.000  K\n"
        "on average 128.0 % of persistence's RMSE");
}

TEST_CASE("forecast metrics: figures of a test set are not mistaken for those of a validation") {
  const FieldsInfo info = fields();
  const Report report = metrics_of(info).report(DataSplit::test);
  std::vector<std::string> names;
  for (const Figure& figure : report.summary) names.push_back(figure.name);
  CHECK(names == std::vector<std::string>{"test_rmse", "test_rmse", "test_persistence_rmse", "test_persistence_rmse",
                                          "test_rmse_physical", "test_rmse_physical", "test_persistence_rmse_physical",
                                          "test_persistence_rmse_physical"});
  CHECK_THAT(report.table, ContainsSubstring("RMSE of the test set: "));
}

TEST_CASE("forecast metrics: persistence is scored in one whole pass, and begun anew after one that was not") {
  const FieldsInfo info = fields();
  ForecastMetrics metrics = metrics_of(info);
  CHECK(metrics.needs_persistence());
  metrics.begin();  // the pass before has not come to its end
  CHECK(metrics.sums().size() == 3);
  metrics.add(std::array{4., 0., 0., 0., 4., 0., 0., 0.}, 0.3, 1);
  metrics.add_persistence(std::array{4., 0., 0., 0., 16., 0., 0., 0.});
  metrics.end();
  CHECK(metrics.loss() == Approx(0.3));
  CHECK(metrics.persistence_rmse() == std::vector<double>{1, 2});
  CHECK_FALSE(metrics.needs_persistence());
  metrics.begin();
  CHECK(metrics.sums().size() == 2);  // what ranks add up: the forecast's and the loss
  CHECK(metrics.persistence_rmse() == std::vector<double>{1, 2});
}

TEST_CASE("forecast metrics: the console's sentence has four channels at most, the table all") {
  FieldsInfo info = fields();
  info.channel_names = {"u10", "v10", "t2m", "sp", "msl_of_a_long_name"};
  info.statistics = {.means = std::vector<double>(5, 0), .stds = std::vector<double>(5, 1)};
  info.units = {};
  ForecastMetrics metrics(info, 5, kPixels);
  const std::vector<double> ones = [] {
    std::vector<double> sums(20, 0);
    for (std::size_t i = 0; i < sums.size(); i += 4) sums[i] = 4;
    return sums;
  }();
  metrics.begin();
  metrics.add(ones, 1, 1);
  metrics.add_persistence(ones);
  CHECK(metrics.report(DataSplit::valid).sentence ==
        "RMSE (persistence): 100.0 % of it on average, u10 1 (1), v10 1 (1), t2m 1 (1), sp 1 (1), ...");
  CHECK_THAT(metrics.report(DataSplit::valid).table,
             ContainsSubstring("variable            forecast  persistence  ratio      forecast  persistence  unit\n") &&
                 ContainsSubstring("\nmsl_of_a_long_name    1.0000       1.0000   100%        1.0000       1.0000\n"));
}

TEST_CASE("forecast metrics: of lead times each has its own figures, titles and percentage") {
  const FieldsInfo info = fields();
  ForecastMetrics metrics = ForecastMetrics::of_leads(info, 2, kPixels, false, {{1, "6h"}, {4, "24h"}});
  CHECK(metrics.steps() == 4);
  CHECK(metrics.has_lead(1));
  CHECK_FALSE(metrics.has_lead(2));
  metrics.begin();
  metrics.add_lead(1, std::array{1., 0., 0., 0., 4., 0., 0., 0.});                // 0.5, 1
  metrics.add_lead_persistence(1, std::array{4., 0., 0., 0., 16., 0., 0., 0.});   // 1, 2
  metrics.add_lead(4, std::array{16., 0., 0., 0., 16., 0., 0., 0.});              // 2, 2
  metrics.add_lead_persistence(4, std::array{16., 0., 0., 0., 64., 0., 0., 0.});  // 2, 4
  const Report report = metrics.report(DataSplit::valid);
  CHECK(report.sentence == "after 6h 50.0 %, after 24h 75.0 % of persistence's RMSE");
  check_figures(report.line, {{"lead_6h_rmse", "u10", 0.5},
                              {"lead_6h_rmse", "t2m", 1},
                              {"lead_6h_persistence_rmse", "u10", 1},
                              {"lead_6h_persistence_rmse", "t2m", 2},
                              {"lead_24h_rmse", "u10", 2},
                              {"lead_24h_rmse", "t2m", 2},
                              {"lead_24h_persistence_rmse", "u10", 2},
                              {"lead_24h_persistence_rmse", "t2m", 4}});
  REQUIRE(report.charts.size() == 4);
  CHECK(report.charts.back().group == "RMSE beside persistence after 24h");
  CHECK_THAT(report.table, ContainsSubstring("RMSE of the validation set after 6h: ") &&
                               ContainsSubstring("\nRMSE of the validation set after 24h: ") &&
                               ContainsSubstring("\non average 75.0 % of persistence's RMSE"));
  CHECK(metrics.lack().empty());
  CHECK_THROWS_WITH(metrics.add_lead(2, std::array{1., 0., 0., 0., 4., 0., 0., 0.}),
                    "these metrics score no forecasts of 2 steps");
}

TEST_CASE("forecast metrics: a rollout is judged after its first step and its last, and what a set lacks is told") {
  const FieldsInfo info = fields();
  ForecastMetrics rolled(info, 2, kPixels, false, 3);
  rolled.begin();
  rolled.add(std::array{1., 0., 0., 0., 4., 0., 0., 0.}, 0.5, 2);
  rolled.add_persistence(std::array{4., 0., 0., 0., 4., 0., 0., 0.});
  rolled.add_last(std::array{4., 0., 0., 0., 36., 0., 0., 0.});               // 1, 3
  rolled.add_last_persistence(std::array{16., 0., 0., 0., 16., 0., 0., 0.});  // 2, 2
  CHECK(rolled.report(DataSplit::valid).sentence ==
        "RMSE (persistence): 75.0 % of it on average, u10 0.5 (1), t2m 1 (1); after 3 steps 100.0 %");
  CHECK(rolled.loss() == 0.5);

  ForecastMetrics masked(info, 2, kPixels, true);  // of each channel: four sums, the weight there and the one missing
  masked.begin();
  CHECK(masked.lack() == "channel u10 is missing at every point of every target");
  masked.add(std::array{1., 0., 0., 0., 2., 2., 0., 0., 0., 0., 0., 4.}, 0.5, 1);
  CHECK(masked.lack() == "channel t2m is missing at every point of every target");
  masked.add(std::array{0., 0., 0., 0., 0., 4., 1., 0., 0., 0., 1., 3.}, 0.5, 0);
  CHECK(masked.lack().empty());
  masked.begin();
  masked.add(std::array{1., 0., 0., 0., 2., 2., 1., 0., 0., 0., 1., 3.}, 0.5, 0);
  CHECK(masked.lack() == "no point of a target has a weight in the loss");
}

TEST_CASE("forecast metrics: a channel without persistence is out of the average, and one step has no last one") {
  const FieldsInfo info = fields();
  ForecastMetrics masked(info, 2, kPixels, true);
  masked.begin();
  masked.add(std::array{4., 0., 0., 0., 4., 0., 4., 0., 0., 0., 4., 0.}, 0.5, 1);       // 1, 1
  masked.add_persistence(std::array{16., 0., 0., 0., 4., 0., 0., 0., 0., 0., 0., 4.});  // 2, nothing
  CHECK_THAT(masked.report(DataSplit::valid).sentence,
             ContainsSubstring("RMSE (persistence): 50.0 % of it on average, u10 1 (2), t2m 1 ("));
  CHECK_THAT(masked.report(DataSplit::valid).table, ContainsSubstring("\non average 50.0 % of persistence's RMSE"));
  CHECK(masked.steps() == 1);
  CHECK_THROWS_WITH(masked.add_last(std::array<double, 12>{}), "the rollouts of these metrics have one step");
  CHECK_THROWS_WITH(masked.add_last_persistence(std::array<double, 12>{}),
                    "the rollouts of these metrics have one step");
  // Losses are weighed.
  ForecastMetrics weighed(info, 2, kPixels);
  weighed.begin();
  const std::array sums{4., 0., 0., 0., 4., 0., 0., 0.};
  weighed.add(sums, 2, 1);
  weighed.add(sums, 6, 3);
  CHECK(weighed.loss() == 5);
}

TEST_CASE("scores: five digits of the largest number, and at least those before the point") {
  const auto digits = [](std::initializer_list<double> numbers) {
    std::vector<int> decimals;
    for (const double number : numbers) decimals.push_back(decimals_for(number));
    return decimals;
  };
  CHECK(digits({9.99, 10, 280, 99999, 1e6}) == std::vector{4, 3, 2, 0, 0});
  CHECK(digits({0.5, 0.1, 0.002, 1e-9}) == std::vector{5, 5, 7, 9});
  CHECK(digits({0, -1, NAN, INFINITY}) == std::vector{4, 4, 4, 4});
}

}  // namespace
}  // namespace isobar
