// The scores of forecasts by lead time, and the pictures of forecasts: numbers, columns, names of files.
#include "models/forecast/lead_scores.h"

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/maps/map_image.h"
#include "models/cnn/recipe.h"
#include "models/forecast/maps.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

constexpr double kPixelsOfScores = 8;

FieldsInfo scored_fields() {
  return {.channel_names = {"t2m", "a_long_name", "lsm"},
          .statistics = {.means = {280, 0, 0}, .stds = {2, 100, 1}},
          .row_weights = {1, 1},
          .latitudes = {},
          .longitudes = {},
          .units = {"kelvin", "", "1"}};
}

// Of two channels, the sums of one sample: errors squared, and those of the anomaly correlation.
std::array<double, 8> sums_of(double rmse, double other_rmse, double acc) {
  return {rmse * rmse * kPixelsOfScores, acc * 6, 9, 4, other_rmse * other_rmse * kPixelsOfScores, acc * 6, 4, 9};
}

Forecaster scored_forecaster() {
  ForecasterOptions options{.network = std::make_shared<CnnRecipe>(), .forecast = {}};
  options.forecast.img_size = {2, 4};
  options.forecast.n_in_channels = 3;
  options.forecast.n_out_channels = 2;
  options.forecast.time_features = false;
  return {options, ComputeOptions(), scored_fields(), Device{}};
}

}  // namespace

TEST_CASE("lead scores: pooled over starts, in the variables' units, and null where no start has truth") {
  const Forecaster forecaster = scored_forecaster();
  LeadScores scores(forecaster, {1, 3, 4}, 6, true);
  CHECK_FALSE(scores.are_any());
  scores.add(0, sums_of(1, 0.5, 1), sums_of(2, 1, 0.5));
  scores.add(0, sums_of(7, 0.5, 0.5), sums_of(2, 1, 0.5));
  scores.add(1, sums_of(3, 0.25, 0.25), sums_of(4, 2, 0));
  for (int start = 0; start < 3; ++start) scores.count_start();
  CHECK(scores.are_any());
  const nlohmann::ordered_json json = scores.json();
  CHECK(json.dump() == R"({"starts":3,"lead_steps":[1,3,4],"scored_starts":[2,1,0],)"
                       R"("rmse":{"t2m":[10.0,6.0,null],"a_long_name":[50.0,25.0,null]},)"
                       R"("persistence_rmse":{"t2m":[4.0,8.0,null],"a_long_name":[100.0,200.0,null]},)"
                       R"("acc":{"t2m":[0.75,0.25,null],"a_long_name":[0.75,0.25,null]},)"
                       R"("persistence_acc":{"t2m":[0.5,0.0,null],"a_long_name":[0.5,0.0,null]}})");
  CHECK(scores.table() ==
        "variable     unit       lead        RMSE  persistence       ACC  persistence  starts\n"
        "t2m          K          +6 h      10.000        4.000    0.7500       0.5000       2\n"
        "t2m          K         +18 h       6.000        8.000    0.2500       0.0000       1\n"
        "t2m          K         +24 h           -            -         -            -       0\n"
        "a_long_name             +6 h       50.00       100.00    0.7500       0.5000       2\n"
        "a_long_name            +18 h       25.00       200.00    0.2500       0.0000       1\n"
        "a_long_name            +24 h           -            -         -            -       0\n");
}

TEST_CASE("lead scores: without times leads are counted in steps, without a climatology there is no ACC") {
  const Forecaster forecaster = scored_forecaster();
  LeadScores scores(forecaster, {1, 2}, 0, false);
  scores.add(1, sums_of(1, 0.5, 1), sums_of(2, 1, 0.5));
  CHECK_FALSE(scores.json().contains("acc"));
  CHECK_FALSE(scores.json().contains("persistence_acc"));
  const std::string table = scores.table();
  CHECK_THAT(table, ContainsSubstring("RMSE  persistence  starts\n"));
  CHECK_THAT(table, ContainsSubstring("t2m          K       +1 step           -            -       0\n"));
  CHECK_THAT(table, ContainsSubstring("t2m          K      +2 steps      2.0000       4.0000       1\n"));
}

TEST_CASE("pictures of a forecast: of the channel's own fields, under a name that any file may have") {
  FieldsInfo info = scored_fields();
  info.channel_names[1] = "10 m/u-wind";
  std::vector<float> target(3 * 8), forecast(2 * 8);
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = static_cast<float>(i * i);
  for (std::size_t i = 0; i < forecast.size(); ++i) forecast[i] = static_cast<float>(i * i + i % 3);
  const Picture second = draw_forecast(target, forecast, info, 1, 2, 4, {"+6 h", "2013-01-01 06:00", 800});
  CHECK(second.tag == "Visualization, 10 m/u-wind");
  CHECK(second.file == "map_10_m_u_wind");
  const auto field = [](const std::vector<float>& values) { return Field{2, 4, std::span(values).subspan(8, 8)}; };
  const Image wanted = target_forecast_error(field(target), field(forecast),
                                             {.variable = "10 m/u-wind",
                                              .unit = "",
                                              .lead_time = "+6 h",
                                              .valid_time = "2013-01-01 06:00",
                                              .iteration = 800,
                                              .lat = {},
                                              .lon = {}});
  CHECK(encode_png(second.image) == encode_png(wanted));
  CHECK(encode_png(second.board) == encode_png(target_and_prediction(field(target), field(forecast))));
}

}  // namespace isobar::testing
