// Whether data and weights are of one kind: lead times, the direction of rows, units; and how many forecasts fit.
#include "models/forecast/fit.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "models/cnn/recipe.h"
#include "models/forecast/forecast_memory.h"
#include "models/forecast/meaning.h"
#include "models/unet/recipe.h"
#include "tests/harness/data_files.h"
#include "tests/harness/error_of.h"
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

TEST_CASE("fit: statistics of logarithms or of sums are those of such fields alone, by channel and file") {
  const FittedData data;
  const std::string file = "/stats/stats.json",
                    kept = ": these are statistics of other values; leave statistics to the run";
  const auto refusal = [&](const FieldSeries& series, const FieldLabels& said, bool are_own = false) {
    FieldsInfo info = trained_every(6);
    info.statistics.labels = said;
    return error_of([&] { label_from_statistics(info, series, "/stats", are_own); });
  };
  const FieldSeries logarithms({.paths = {data.path()}, .log_scales = {{"c1", 0.5}}});
  CHECK(refusal(logarithms, {{"t2m", "c1"}, {"K", "log1p(? / 0.5)"}, 6}).empty());
  CHECK(refusal(logarithms, {{"t2m", "c1"}, {"K", ""}, 6}) ==
        file + " does not say that channel c1 is in log1p(? / 0.5), as config key transforms reads it" + kept);
  CHECK_FALSE(refusal(logarithms, {{"t2m", "c1"}, {"K", ""}, 6}, /*are_own=*/true).empty());
  const FieldSeries sums({.paths = {data.path()}, .sums = {"c1"}, .dt = 3});
  CHECK(sums.labels().summed == std::vector<std::int64_t>{1, 3});
  CHECK(FieldSeries({.paths = {data.path()}, .sums = {"c1"}}).labels().summed.empty());
  CHECK(refusal(sums, {{"t2m", "c1"}, {}, 6, {1, 3}}).empty());
  CHECK(refusal(sums, {{"t2m", "c1"}, {}, 6, {1, 2}}) ==
        file + " says that channel c1 is a sum of 2 steps, but config key accumulate reads sums of 3" + kept);
  CHECK(refusal(sums, {{"t2m", "c1"}, {}, 6}) ==
        file + " says that channel c1 is a sum of 1 step, but config key accumulate reads sums of 3" + kept);
  CHECK(refusal(sums, {{"t2m", "c1"}, {}, 6}, /*are_own=*/true).empty());
  CHECK(refusal(data.series(), {{"t2m", "c1"}, {}, 6, {4, 1}}) ==
        file + " says that channel t2m is a sum of 4 steps, but config key accumulate reads sums of 1" + kept);

  // Without stats.json the table of known names stands for it; what files say is kept.
  FieldsInfo info = trained_every(0);
  info.statistics.labels.reset();
  label_from_statistics(info, data.series(), "/stats", false);
  CHECK(info.units == std::vector<std::string>{"K", ""});
  CHECK(info.step_hours == 6);
  const FittedData celsius({.names = {"t2m", "c1"}, .units = {"degC", ""}, .hours = {0, 6, 12, 18}});
  CHECK(error_of([&] { label_from_statistics(info, celsius.series(), "/stats", false); }) ==
        celsius.path() + ": channel t2m is in degC, but in K in the table of known names, which stands for " + file);
  CHECK(refusal(celsius.series(), {{"t2m", "c1"}, {"K", ""}, 6}) ==
        celsius.path() + ": channel t2m is in degC, but in K in " + file);
  CHECK(refusal(celsius.series(), {{"t2m", "c1"}, {"degC", ""}, 3}) ==
        celsius.path() + ": its steps are 6 hours apart, but 3 hours in " + file);
}

TEST_CASE("fit: roles and planes that one of both has none of are told as none") {
  ForecastOptions options;
  options.channels = {{"t2m"}};
  options.forcing_channels = {{"c1"}};
  options.n_in_channels = 2;
  options.n_out_channels = 1;
  FieldsInfo trained = trained_every(6);
  check_planes(options, trained, "w");
  options.forcing_channels.reset();
  options.diagnostic_channels = {{"c1"}};
  options.n_in_channels = 1;
  options.n_out_channels = 2;
  check_planes(options, trained, "w");
  trained.extra_names = {"cos_zenith"};
  CHECK_THROWS_WITH(check_planes(options, trained, "w"),
                    "w was trained with the planes cos_zenith, but config keys computed_channels and "
                    "constant_channels name none");
  trained.extra_names.clear();
  options.computed_channels = {{"cos_zenith"}};
  check_planes(options, trained, "w");  // weights of before these names were kept
  options.n_in_channels = 2;
  options.channels = {{"t2m", "c1"}};
  options.n_out_channels = 3;
  options.diagnostic_channels = {{"sp"}};
  trained.channel_names = {"t2m", "c1", "sp"};
  check_planes(options, trained, "w");
  options.diagnostic_channels = {{"tp"}};
  CHECK_THROWS_WITH(check_planes(options, trained, "w"),
                    "config key diagnostic_channels names tp, but w was trained with sp in this role");
}

TEST_CASE("fit: a forecaster has as many means, rows and outputs as its config says") {
  const auto refusal = [](const std::function<void(ForecasterOptions&, FieldsInfo&, ComputeOptions&)>& change) {
    ForecasterOptions options = small_forecaster(6);
    ComputeOptions compute;
    FieldsInfo info = trained_every(6);
    info.row_weights.assign(4, 1.0);
    change(options, info, compute);
    return error_of([&] { Forecaster(options, compute, info, Device{}); });
  };
  CHECK(refusal([](auto&, auto&, auto&) {}).empty());
  CHECK(refusal([](auto& options, auto&, auto&) { options.forecast.n_in_channels = 1; }) ==
        "n_out_channels: 2 is more than n_in_channels, 1");
  CHECK(refusal([](auto&, auto& info, auto&) { info.row_weights.pop_back(); }) == "row weights: 3 for 4 rows");
  CHECK(refusal([](auto&, auto& info, auto&) { info.statistics.means.pop_back(); }) ==
        "there are 1 means for 2 variables, and 0 for 0 planes beside them");
  CHECK(refusal([](auto&, auto& info, auto&) { info.extra_means = {1}; }) ==
        "there are 2 means for 2 variables, and 1 for 0 planes beside them");
  const auto with_missing = [](std::int64_t rollout, bool graph, const char* channel) {
    return [=](ForecasterOptions& options, FieldsInfo&, ComputeOptions& compute) {
      options.forecast.missing = NumbersOrWords{{channel, "mean"}};
      options.forecast.rollout.rollout = rollout;
      compute.cuda_graph = graph;
    };
  };
  CHECK(refusal(with_missing(2, true, "t2m")) ==
        "cuda_graph: a rollout of fields with missing points weighs its steps by each batch, which a captured graph "
        "cannot");
  CHECK(refusal(with_missing(1, true, "t2m")).empty());
  CHECK(refusal(with_missing(2, false, "t2m")).empty());
  CHECK(refusal(with_missing(2, true, "sst")).empty());  // which no channel is
}

TEST_CASE("fit: of a padded grid the places of rows and columns go on as the last two do") {
  ForecastOptions options;
  options.img_size = {3, 5};
  options.n_in_channels = options.n_out_channels = 1;
  options.time_features = false;
  options.pad_grid = true;
  FieldsInfo info;
  info.channel_names = {"t2m"};
  info.latitudes = {60, 50, 30};
  info.longitudes = {0, 10, 20, 30, 41};
  const UnetRecipe network(UnetOptions{.width = 2, .levels = 2});
  const FieldsMeaning meaning = meaning_of(options, info, network);
  CHECK(meaning.height == 4);
  CHECK(meaning.width == 8);
  CHECK(meaning.latitudes == std::vector<double>{60, 50, 30, 10});
  CHECK(meaning.longitudes == std::vector<double>{0, 10, 20, 30, 41, 52, 63, 74});
  CHECK_FALSE(meaning.goes_round);
  CHECK(meaning.adds_input == false);
  CHECK(meaning.outputs.at(0).unit.empty());
  info.latitudes.clear();
  CHECK(meaning_of(options, info, network).latitudes.empty());
  options.pad_grid = false;
  CHECK(meaning_of(options, info, network).longitudes.size() == 5);
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
