// What a network sees of the fields: the input that a rollout continues with is the one that the data would give.
#include "models/forecast/input.h"

#include <array>
#include <cmath>
#include <vector>

#include "data/fields/calendar.h"
#include "data/fields/pairs.h"
#include "engine/field_ops.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

Tensor counted(Shape shape, DType dtype) {
  Tensor t = Tensor::empty(std::move(shape), dtype, Device{});
  std::vector<double> values(static_cast<std::size_t>(t.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * i % 97) / 8;
  t.set_values(values);
  return t;
}

// Sea surface temperature, with the state before it, and ice, which is given. Either may be missing and has a mask; the
// temperature is never there at the second of two points.
ForecastOptions options_of_sea_and_ice() {
  ForecastOptions options;
  options.img_size = {1, 2};
  options.channels = {"sst"};
  options.forcing_channels = {"ice"};
  options.n_in_channels = 2;
  options.n_out_channels = 1;
  options.time_features = false;
  options.history = 1;
  options.missing = NumbersOrWords{{"sst", 300.0}, {"ice", "mean"}};
  options.missing_masks = {"ice", "sst"};
  return options;
}

FieldsInfo info_of_sea_and_ice() {
  FieldsInfo info;
  info.channel_names = {"sst", "ice"};
  info.statistics = {.means = {290, 0.5}, .stds = {5, 0.25}};
  info.never_there = {0, 1};
  return info;
}

}  // namespace

TEST_CASE("input: a forecast is continued as an input is made, with each sample's own time") {
  constexpr std::int64_t kSamples = 3, kChannels = 2, kWidth = 6;
  for (const std::int64_t kHeight : {2, 4}) {  // as many rows as channels, and others
    ForecastOptions options;
    options.img_size = {kHeight, kWidth};
    options.n_in_channels = options.n_out_channels = kChannels;
    options.time_features = true;
    FieldsInfo info;
    info.statistics = {.means = {1, -2}, .stds = {0.5, 4}};
    const FieldInput fields(options, info, {0, kHeight}, DType::fp64, Device{});
    Batch batch{{"input", counted({kSamples, kChannels, kHeight, kWidth}, DType::fp32)},
                {"time", counted({kSamples, kTimeFeatures}, DType::fp64)}};
    batch["target"] = counted({kSamples, kChannels, kHeight, kWidth}, DType::fp32);
    batch[at_step("time", 1)] = batch["time"];
    const Tensor input = fields.input_of(batch);
    CHECK(fields.continued(input, fields.persistence_of(input, batch), batch, 1).to_vector() == input.to_vector());

    batch["input"] = counted({kSamples, kChannels, kWidth, kHeight}, DType::fp32);
    CHECK_THROWS_WITH(fields.input_of(batch), testing::ContainsSubstring("the data set's input has the shape"));
  }
}

TEST_CASE("input: planes are normalised by their roles, and a continued forecast keeps what only the data give") {
  // Two channels, one diagnostic, one forcing, two older states, one plane beside them.
  ForecastOptions options;
  options.img_size = {1, 2};
  options.channels = {"a", "b"};
  options.diagnostic_channels = {"d"};
  options.forcing_channels = {"f"};
  options.computed_channels = {"cos_latitude"};
  options.n_in_channels = 3;
  options.n_out_channels = 3;
  options.time_features = false;
  options.history = 2;
  CHECK(options.variables() == 4);
  CHECK(options.input_planes() == 8);
  FieldsInfo info;
  info.statistics = {.means = {1, 2, 3, 4}, .stds = {1, 2, 4, 8}};  // a, b, d, f
  info.extra_means = {0.5};
  info.extra_stds = {0.25};
  const FieldInput fields(options, info, {0, 1}, DType::fp64, Device{});
  CHECK(fields.planes() == 8);
  Tensor raw = Tensor::empty({1, 8, 1, 2}, DType::fp32, Device{});
  raw.set_values({10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61, 70, 71, 80, 81});
  Tensor before_raw = Tensor::empty({1, 1, 1, 2}, DType::fp32, Device{});
  before_raw.set_values({7, 11});
  const Batch batch{{"input", raw}, {"before", before_raw}};
  const Tensor input = fields.input_of(batch);
  CHECK(input.to_vector() ==
        std::vector<double>{9, 10, 9, 9.5, 29, 30, 19, 19.5, 49, 50, 29, 29.5, 8.25, 8.375, 318, 322});
  CHECK(fields.persistence_of(input, batch).to_vector() == std::vector<double>{9, 10, 9, 9.5, 1, 2});

  Tensor forecast = Tensor::empty({1, 3, 1, 2}, DType::fp64, Device{});
  forecast.set_values({-1, -2, -3, -4, -5, -6});
  Batch window = batch;
  window["target"] = Tensor::empty({1, 3, 1, 2}, DType::fp32, Device{});
  window["target"].set_values({1, 2, 3, 4, 5, 6});
  window[at_step("given", 1)] = Tensor::empty({1, 2, 1, 2}, DType::fp32, Device{});
  window[at_step("given", 1)].set_values({12, 20, 1, 1.5});
  // The forecast, the states before it one step older, and the forcing and the plane of the next step.
  CHECK(fields.continued(input, forecast, window, 1).to_vector() ==
        std::vector<double>{-1, -2, -3, -4, 9, 10, 9, 9.5, 29, 30, 19, 19.5, 1, 2, 2, 4});
}

TEST_CASE("input: a continued forecast has the masks and the missing points of its own step") {
  ForecastOptions options = options_of_sea_and_ice();
  options.rollout.rollout = std::int64_t{2};
  const FieldsInfo info = info_of_sea_and_ice();
  const FieldInput fields(options, info, {0, 1}, DType::fp64, Device{}, {300, 0.5});
  const auto planes = [](std::int64_t count, const std::vector<double>& values, DType dtype = DType::fp32) {
    Tensor t = Tensor::empty({1, count, 1, 2}, dtype, Device{});
    t.set_values(values);
    return t;
  };
  const double missing = std::nan("");
  const Batch batch{{"input", planes(3, {295, missing, 285, missing, missing, 0.75})},
                    {"target", planes(1, {missing, missing})},
                    {at_step("given", 1), planes(1, {missing, 1})}};
  // sst of the forecast, 300 where it never is; sst before; ice and its mask, and that of sst, of the later step.
  CHECK(fields.continued(fields.input_of(batch), planes(1, {0.5, 0.25}, DType::fp64), batch, 1).to_vector() ==
        std::vector<double>{0.5, 2, 1, 2, 0, 2, 0, 1, 0, 0});
}

TEST_CASE("input: a mask is of a channel that is read") {
  ForecastOptions options;
  options.img_size = {1, 2};
  options.channels = {"a"};
  options.diagnostic_channels = {"d"};
  options.n_in_channels = 1;
  options.n_out_channels = 2;
  options.time_features = false;
  options.missing = NumbersOrWords{{"a", "mean"}, {"d", "mean"}};
  options.missing_masks = {"a"};
  FieldsInfo info;
  info.channel_names = {"a", "d"};
  info.statistics = {.means = {0, 0}, .stds = {1, 1}};
  CHECK(FieldInput(options, info, {0, 1}, DType::fp64, Device{}, {0, 0}).planes() == 2);
  options.missing_masks = {"d"};
  CHECK_THROWS_WITH(FieldInput(options, info, {0, 1}, DType::fp64, Device{}, {0, 0}),
                    "config key missing_masks names d, which is not read");
}

TEST_CASE("input: the change is added to the channels, and a diagnostic is the network's own") {
  Tensor x = Tensor::empty({2, 3, 1, 2}, DType::fp64, Device{}),
         given = Tensor::empty({2, 4, 1, 2}, DType::fp64, Device{});
  x.set_values({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  given.set_values({10, 20, 30, 40, 50, 60, 70, 80, 100, 200, 300, 400, 500, 600, 700, 800});
  CHECK(add_leading_channels(x, given, 2).to_vector() ==
        std::vector<double>{11, 22, 33, 44, 5, 6, 107, 208, 309, 410, 11, 12});
  CHECK_THROWS_AS(add_leading_channels(x, given, 4), Error);
}

TEST_CASE("input: missing points of an input are filled in the data's units, those of a target stay missing") {
  ForecastOptions options;
  options.img_size = {1, 2};
  options.n_in_channels = options.n_out_channels = 2;
  options.time_features = false;
  FieldsInfo info;
  info.statistics = {.means = {1, -2}, .stds = {0.5, 4}};
  Tensor fields = Tensor::empty({1, 2, 1, 2}, DType::fp32, Device{});
  fields.set_values({std::nan(""), 2, 6, std::nan("")});
  const Batch batch{{"input", fields}, {"target", fields}};
  const FieldInput filled(options, info, {0, 1}, DType::fp64, Device{}, {3, -2}),
      plain(options, info, {0, 1}, DType::fp64, Device{});
  CHECK(filled.input_of(batch).to_vector() == std::vector<double>{4, 2, 2, 0});
  for (const Tensor& holed : {plain.input_of(batch), plain.target_of(batch), filled.target_of(batch)}) {
    const std::vector<double> values = holed.to_vector();
    CHECK(std::isnan(values[0]));
    CHECK(values[1] == 2);
    CHECK(values[2] == 2);
    CHECK(std::isnan(values[3]));
  }
  CHECK_THROWS_WITH(FieldInput(options, info, {0, 1}, DType::fp64, Device{}, {3}),
                    "missing points: 1 values to fill 2 channels with");
}

TEST_CASE("input: masks follow the planes, and a forecast is missing where the data never have a value") {
  const ForecastOptions options = options_of_sea_and_ice();
  CHECK(options.may_be_missing("sst"));
  CHECK_FALSE(options.may_be_missing("t2m"));
  ForecastOptions never = options;
  never.missing = NumbersOrWords{{"sst", "fill"}, {"ice", "refuse"}};
  CHECK_FALSE((never.may_be_missing("sst") || never.may_be_missing("ice")));
  const FieldsInfo info = info_of_sea_and_ice();
  const FieldInput fields(options, info, {0, 1}, DType::fp64, Device{}, {300, 0.5});
  CHECK(fields.planes() == 5);  // sst, sst before, ice, mask of ice, mask of sst
  Tensor raw = Tensor::empty({1, 3, 1, 2}, DType::fp32, Device{});
  raw.set_values({295, std::nan(""), 285, std::nan(""), std::nan(""), 0.75});
  CHECK(fields.input_of({{"input", raw}}).to_vector() == std::vector<double>{1, 2, -1, 2, 0, 1, 0, 1, 1, 0});

  Tensor forecast = Tensor::empty({1, 1, 1, 2}, DType::fp64, Device{});
  forecast.set_values({0.5, 0.25});
  CHECK(fields.with_never_there_filled(forecast).to_vector() == std::vector<double>{0.5, 2});
  const std::vector<double> missing = fields.without_never_there(forecast).to_vector();
  CHECK(missing[0] == 0.5);
  CHECK(std::isnan(missing[1]));
}
