// Whether data and weights are of one kind: lead times, the direction of rows, units; and how many forecasts fit.
#include "models/forecast/fit.h"

#include <memory>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "models/cnn/recipe.h"
#include "models/forecast/forecast_memory.h"
#include "models/forecast/meaning.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

// Six-hourly steps of t2m and c1, on two rows.
class FittedData {
 public:
  explicit FittedData(const Labels& labels = {
                          .names = {"t2m", "c1"}, .units = {"K", ""}, .hours = {0, 6, 12, 18}, .latitudes = {60, 50}}) {
    write_labelled_fields(path(), {4, 2, 2, 3}, labels);
  }
  std::string path() const { return folder_ / "2001.h5"; }
  FieldSeries series(std::int64_t dt = 1) const { return FieldSeries({.paths = {path()}, .dt = dt}); }

 private:
  TemporaryFolder folder_;
};

FieldsInfo trained_every(double step_hours) {
  return {.channel_names = {"t2m", "c1"},
          .statistics = {.means = {280, 0}, .stds = {10, 1}},
          .row_weights = {1, 1},
          .latitudes = {60, 50},
          .longitudes = {},
          .units = {"K", "m"},
          .step_hours = step_hours};
}

ForecasterOptions small_forecaster(std::int64_t columns) {
  ForecasterOptions options{.network = std::make_shared<CnnRecipe>(CnnOptions{.width = 4, .depth = 3}), .forecast = {}};
  options.forecast.img_size = {4, columns};
  options.forecast.n_in_channels = options.forecast.n_out_channels = 2;
  options.forecast.time_features = true;
  return options;
}

}  // namespace

TEST_CASE("fit: the lead time is that of the weights, whatever the steps, shorter and longer ones are refused") {
  const FittedData data;
  check_lead_time(trained_every(6), 2, "w", data.series(2));
  check_lead_time(trained_every(12), 1, "w", data.series(2));
  check_lead_time(trained_every(12.01), 1, "w", data.series(2));  // rounding of stored times
  check_lead_time(trained_every(0), 5, "w", data.series(2));      // unknown
  CHECK_THROWS_WITH(check_lead_time(trained_every(6), 1, "w", data.series(2)),
                    data.path() +
                        ": its steps are 6 hours apart, so that dt = 2 is 12 hours, but w forecasts 6 hours "
                        "ahead");
  CHECK_THROWS_WITH(check_lead_time(trained_every(1), 3, "w", data.series(1)),
                    data.path() +
                        ": its steps are 6 hours apart, so that dt = 1 is 6 hours, but w forecasts 3 hours "
                        "ahead");
  CHECK_THROWS_WITH(check_lead_time(trained_every(6), 3, "w", data.series(2)), ContainsSubstring("forecasts 18 hours"));
}

TEST_CASE("fit: rows that run the other way are refused, and said to run as they do") {
  const FittedData falling, rising({.hours = {0, 6, 12, 18}, .latitudes = {50, 60}});
  FieldsInfo trained = trained_every(6);
  check_orientation(trained, falling.series());
  CHECK_THROWS_WITH(check_orientation(trained, rising.series()),
                    rising.path() + ": its rows run from south to north, and those of the weights' data the other way");
  trained.latitudes = {10, 20};
  check_orientation(trained, rising.series());
  CHECK_THROWS_WITH(
      check_orientation(trained, falling.series()),
      falling.path() + ": its rows run from north to south, and those of the weights' data the other way");
  trained.latitudes.clear();
  check_orientation(trained, falling.series());
}

TEST_CASE("fit: units and time step are the data's, else those of the weights, and both must agree") {
  const FittedData data;
  FieldsInfo info = trained_every(0);
  info.units.clear();
  label_from_weights(info, data.series(), trained_every(6), "w");
  CHECK(info.units == std::vector<std::string>{"K", "m"});
  CHECK(info.step_hours == 6);
  FieldsInfo celsius = trained_every(6);
  celsius.units = {"degC", "m"};
  CHECK_THROWS_WITH(label_from_weights(info, data.series(), celsius, "w"),
                    data.path() + ": channel t2m is in K, but in degC in w");
  celsius.units = {};  // then the mean tells that t2m is in K
  celsius.statistics.means = {280, 0};
  const FittedData in_celsius({.names = {"t2m", "c1"}, .units = {"degC", ""}, .hours = {0, 6, 12, 18}});
  CHECK_THROWS_WITH(label_from_weights(info, in_celsius.series(), celsius, "w"),
                    in_celsius.path() + ": channel t2m is in degC, but in K in w");
  celsius.statistics.means = {7, 0};
  label_from_weights(info, in_celsius.series(), celsius, "w");
  CHECK(info.units == std::vector<std::string>{"degC", ""});
}

TEST_CASE("fit: the planes of an input are called by what they are, in their order") {
  ForecastOptions options;
  options.img_size = {2, 3};
  options.channels = {{"2m_temperature"}};
  options.diagnostic_channels = {{"tp"}};
  options.forcing_channels = {{"sst"}};
  options.computed_channels = {{"cos_zenith"}};
  options.constant_channels = TextMap{{"lsm", "f.nc:lsm"}};
  options.history = 2;
  options.n_in_channels = 2;
  options.n_out_channels = 2;
  options.time_features = true;
  options.missing = NumbersOrWords{{"sst", "mean"}};
  options.missing_masks = {{"sst"}};
  options.predict_change = true;
  FieldsInfo info;
  info.channel_names = {"2m_temperature", "tp", "sst"};
  info.units = {"K", "m", "degC"};
  info.latitudes = {60, 50};
  info.longitudes = {0, 120, 240};
  const FieldsMeaning meaning = meaning_of(options, info, CnnRecipe());
  std::vector<std::string> inputs, outputs;
  for (const auto& [name, unit] : meaning.inputs) inputs.push_back(name + (unit.empty() ? "" : " in " + unit));
  for (const auto& [name, unit] : meaning.outputs) outputs.push_back(name + " in " + unit);
  CHECK(inputs == std::vector<std::string>{"t2m in K", "t2m of 1 steps before in K", "t2m of 2 steps before in K",
                                           "sst in degC", "cos_zenith", "lsm", "mask of sst", "sin of the hour",
                                           "cos of the hour", "sin of the day", "cos of the day"});
  CHECK(outputs == std::vector<std::string>{"t2m in K", "tp in m"});
  CHECK(meaning.height == 2);
  CHECK(meaning.width == 3);
  CHECK(meaning.goes_round);
  CHECK(meaning.adds_input == true);
}

TEST_CASE("fit: as many forecasts are made at once as fit into memory, from 1 to 16") {
  const ForecasterOptions options = small_forecaster(6);
  FieldsInfo info = trained_every(6);
  info.row_weights.assign(4, 1.0);
  const auto bytes = [&](std::int64_t batch) {
    return bytes_of_forecasts(options, ComputeOptions(), info, DeviceKind::cpu, batch);
  };
  const auto fit = [&](std::size_t memory) {
    return starts_that_fit(options, ComputeOptions(), info, DeviceKind::cpu, memory);
  };
  const std::size_t one = bytes(1), more = bytes(2) - one;
  CHECK(bytes(5) > one);
  CHECK(fit(0) == 1);
  CHECK(fit(one + more - 1) == 1);
  CHECK(fit(one + more) == 2);
  CHECK(fit(one + 4 * more) == 5);
  CHECK(fit(one + 5 * more - 1) == 5);
  CHECK(fit(100 * (one + more)) == 16);
  // A grid of twice the points takes twice the memory.
  CHECK(bytes_of_forecasts(small_forecaster(12), ComputeOptions(), info, DeviceKind::cpu, 4) > 1.8 * bytes(4));
}

}  // namespace isobar::testing
