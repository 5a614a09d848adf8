// What a network sees of the fields: the input that a rollout continues with is the one that the data would give.
#include "models/forecast/input.h"

#include <array>
#include <cmath>
#include <vector>

#include "data/fields/calendar.h"
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

}  // namespace

TEST_CASE("input: a forecast of fewer channels than go in is not continued") {
  ForecastOptions options;
  options.img_size = {2, 4};
  options.n_in_channels = 3;
  options.n_out_channels = 2;
  options.time_features = false;
  const FieldInput fields(options, {.means = {0, 0, 0}, .stds = {1, 1, 1}}, {0, 2}, DType::fp64, Device{});
  CHECK_THROWS_WITH(fields.input_after(counted({1, 2, 2, 4}, DType::fp64), {}),
                    "n_out_channels: a forecast of 2 channels cannot be continued by a model that needs 3");
}

TEST_CASE("input: a forecast is continued as an input is made, with each sample's own time") {
  constexpr std::int64_t kSamples = 3, kChannels = 2, kWidth = 6;
  for (const std::int64_t kHeight : {2, 4}) {  // as many rows as channels, and others
    ForecastOptions options;
    options.img_size = {kHeight, kWidth};
    options.n_in_channels = options.n_out_channels = kChannels;
    options.time_features = true;
    const RowBand rows{0, kHeight};
    const FieldInput fields(options, {.means = {1, -2}, .stds = {0.5, 4}}, rows, DType::fp64, Device{});
    Batch batch{{"input", counted({kSamples, kChannels, kHeight, kWidth}, DType::fp32)},
                {"time", counted({kSamples, kTimeFeatures}, DType::fp64)}};
    const Tensor input = fields.input_of(batch);
    const std::vector<double> times = batch.at("time").to_vector();
    CHECK(fields.input_after(fields.persistence_of(input), times).to_vector() == input.to_vector());

    batch["input"] = counted({kSamples, kChannels, kWidth, kHeight}, DType::fp32);
    CHECK_THROWS_WITH(fields.input_of(batch), testing::ContainsSubstring("the data set's input has the shape"));
  }
}

TEST_CASE("input: missing points of an input are filled in the data's units, those of a target stay missing") {
  ForecastOptions options;
  options.img_size = {1, 2};
  options.n_in_channels = options.n_out_channels = 2;
  options.time_features = false;
  const Statistics statistics{.means = {1, -2}, .stds = {0.5, 4}};
  Tensor fields = Tensor::empty({1, 2, 1, 2}, DType::fp32, Device{});
  fields.set_values({std::nan(""), 2, 6, std::nan("")});
  const Batch batch{{"input", fields}, {"target", fields}};
  const FieldInput filled(options, statistics, {0, 1}, DType::fp64, Device{}, {3, -2}),
      plain(options, statistics, {0, 1}, DType::fp64, Device{});
  CHECK(filled.input_of(batch).to_vector() == std::vector<double>{4, 2, 2, 0});
  for (const Tensor& holed : {plain.input_of(batch), plain.target_of(batch), filled.target_of(batch)}) {
    const std::vector<double> values = holed.to_vector();
    CHECK(std::isnan(values[0]));
    CHECK(values[1] == 2);
    CHECK(values[2] == 2);
    CHECK(std::isnan(values[3]));
  }
  CHECK_THROWS_WITH(FieldInput(options, statistics, {0, 1}, DType::fp64, Device{}, {3}),
                    "missing points: 1 values to fill 2 channels with");
}
