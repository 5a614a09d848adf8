// What a sample holds of a series, by the roles of its channels.
#include "data/fields/windows.h"

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "data/fields/log_scale.h"
#include "data/fields/pairs.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using Order = std::vector<std::int64_t>;
using testing::field_value;
using testing::TemporaryFolder;

namespace {

// Six-hourly steps of channels 0, 1, ... on 3 x 2 points, as in testing::field_value.
FieldSeries series_of(const TemporaryFolder& folder, std::int64_t steps, std::int64_t channels, std::int64_t dt = 1) {
  testing::Labels labels{.latitudes = {60, 0, -30}};
  for (std::int64_t step = 0; step < steps; ++step) labels.hours.push_back(6.0 * static_cast<double>(step));
  testing::write_labelled_fields(folder / "2001.h5", {steps, channels, 3, 2}, labels);
  return FieldSeries({.paths = {folder / "2001.h5"}, .dt = dt});
}

}  // namespace

TEST_CASE("windows: without roles input and target are all channels") {
  const TemporaryFolder folder;
  const FieldSeries series = series_of(folder, 4, 3);
  const Windows windows(series);
  CHECK(windows.input_planes() == 3);
  CHECK(windows.target_planes() == 3);
  std::vector<float> input(18), all(18);
  windows.read_input(2, series.all_rows(), input.data());
  series.read_step(2, all.data());
  CHECK(input == all);
}

TEST_CASE("windows: planes stand in the order of their roles, older states behind newer ones") {
  const TemporaryFolder folder;
  const FieldSeries series = series_of(folder, 9, 4, 2);
  const ConstantField height{.name = "z", .values = {1, 2, 3, 4, 5, 6}};
  const Windows windows(series,
                        {.channels = {2, 0}, .forcings = {3}, .diagnostics = {1}, .history = 2, .constants = {height}});
  CHECK(windows.input_planes() == 2 * 3 + 1 + 1);
  CHECK(windows.target_planes() == 3);
  std::vector<float> input(8UL * 4);
  windows.read_input(5, {1, 2}, input.data());  // the lower two rows
  const std::array<std::pair<int, int>, 7> planes{
      {{5, 2}, {5, 0}, {3, 2}, {3, 0}, {1, 2}, {1, 0}, {5, 3}}};  // step, channel
  for (std::size_t p = 0; p < planes.size(); ++p) {
    CHECK(input[p * 4] == field_value(0, planes[p].first, planes[p].second, 1, 0));
    CHECK(input[p * 4 + 3] == field_value(0, planes[p].first, planes[p].second, 2, 1));
  }
  CHECK(std::vector<float>(input.end() - 4, input.end()) == std::vector<float>{3, 4, 5, 6});
  std::vector<float> target(3UL * 6), before(6);
  windows.read_target(7, series.all_rows(), target.data());
  CHECK(target[0] == field_value(0, 7, 2, 0, 0));
  CHECK(target[6] == field_value(0, 7, 0, 0, 0));
  CHECK(target[12] == field_value(0, 7, 1, 0, 0));
  windows.read_diagnostics(5, series.all_rows(), before.data());
  CHECK(before[5] == field_value(0, 5, 1, 2, 1));

  // Step 4 has the states 4, 2 and 0; step 6 has a target, step 7 has none.
  CHECK_FALSE(windows.has_inputs(3));
  CHECK(list_samples(windows, SamplerKind::all_pairs) == Order{4, 5, 6});
}

TEST_CASE("windows: older states lie in the range and behind no hole") {
  const TemporaryFolder folder;
  testing::write_labelled_fields(folder / "2001.h5", {7, 1, 1, 2}, {.hours = {0, 6, 12, 24, 30, 36, 42}});
  const FieldSeries whole({.paths = {folder / "2001.h5"}});
  CHECK(list_samples(Windows(whole, {.history = 1}), SamplerKind::all_pairs) == Order{1, 4, 5});
  const FieldSeries part({.paths = {folder / "2001.h5"}, .range = StepRange{4, 7}});
  CHECK(list_samples(Windows(part, {.history = 1}), SamplerKind::all_pairs) == Order{5});
}

TEST_CASE("windows: computed planes are those of the input's time, and of the band's rows") {
  const TemporaryFolder folder;
  const FieldSeries series = series_of(folder, 4, 1);
  const auto computed =
      std::make_shared<const ComputedPlanes>(std::vector<std::string>{"cos_latitude", "cos_zenith"},
                                             GridPoints{{60, 0, -30}, {0, 180}}, 6.0, RadiationUnit::joule);
  const Windows windows(series, {.computed = computed});
  CHECK(windows.input_planes() == 3);
  std::vector<float> input(3UL * 4), expected(2UL * 4);
  windows.read_input(2, {1, 2}, input.data());
  CHECK(input[0] == field_value(0, 2, 0, 1, 0));
  computed->write(*series.hours_since_1970(2), 1, 2, expected.data());
  CHECK(std::vector<float>(input.begin() + 4, input.end()) == expected);
  CHECK(input[4] == 1.0F);  // the equator
}

TEST_CASE("windows: a channel may be a sum over the steps that end at a step, and in a log scale") {
  const TemporaryFolder folder;
  testing::Labels labels{.names = {"t", "tp"}, .units = {"K", "m"}};
  for (int step = 0; step < 8; ++step) labels.hours.push_back(step < 5 ? step : step + 3);
  testing::write_labelled_fields(folder / "2001.h5", {8, 2, 1, 2}, labels);
  const FieldSeries series({.paths = {folder / "2001.h5"}, .sums = {"tp"}, .log_scales = {{"tp", 0.5}}, .dt = 2});
  std::vector<float> fields(4);
  series.read_step(3, fields.data());
  CHECK(fields[0] == field_value(0, 3, 0, 0, 0));
  const double sum = static_cast<double>(field_value(0, 2, 1, 0, 0)) + static_cast<double>(field_value(0, 3, 1, 0, 0));
  CHECK(fields[2] == static_cast<float>(std::log(1 + sum / 0.5)));
  std::vector<float> back{fields[2]};
  from_log_scale(back, 0.5);
  CHECK(std::abs(static_cast<double>(back[0]) - sum) < 1e-5 * sum);
  CHECK(series.labels().units == std::vector<std::string>{"K", "log1p(m / 0.5)"});
  CHECK_FALSE(series.has_sums(0));
  CHECK_FALSE(series.has_sums(5));  // behind a hole
  CHECK(list_samples(Windows(series), SamplerKind::all_pairs) == Order{1, 2});
  CHECK_THROWS_WITH(series.read_step(5, fields.data()),
                    (folder / "2001.h5").string() + ": step 5 has not the 1 steps before it that its sums need");

  CHECK(unit_of_log_scale("log1p(m / 0.5)") == "m");
  CHECK(unit_of_log_scale(log_scale_unit("", 2)) == "");
  CHECK(unit_of_log_scale("m / s") == "m / s");

  testing::write_labelled_fields(folder / "low.h5", {2, 1, 1, 2}, {.names = {"x"}}, {0, 1, -0.5F, 2});
  const FieldSeries low({.paths = {folder / "low.h5"}, .log_scales = {{"x", 0.5}}});
  const std::string refusal = (folder / "low.h5").string() +
                              ": step 1, channel x holds -0.5, which has no logarithm: config key transforms gives it "
                              "the scale 0.5";
  CHECK_THROWS_WITH(low.read_step(1, fields.data()), refusal);
  // A missing point before it hides it not.
  testing::write_labelled_fields(folder / "low.h5", {2, 1, 1, 2}, {.names = {"x"}}, {0, 1, std::nanf(""), -0.5F});
  const FieldSeries holes({.paths = {folder / "low.h5"}, .missing = {"x"}, .log_scales = {{"x", 0.5}}});
  CHECK_NOTHROW(holes.read_step(0, fields.data()));
  CHECK_THROWS_WITH(holes.read_step(1, fields.data()), refusal);
}

TEST_CASE("windows: a constant of another grid and computed planes of unknown times are refused") {
  const TemporaryFolder folder;
  const FieldSeries series = series_of(folder, 2, 1);
  const auto with = [&](std::size_t values) {
    return Windows(series, {.constants = {{.name = "z", .values = std::vector<float>(values, 1)}}}).input_planes();
  };
  CHECK(with(6) == 2);
  CHECK_THROWS_WITH(with(5), "the constant z has 5 values for a grid of 3 x 2");
  testing::write_fields(folder / "storm.h5", {2, 1, 3, 2});
  const FieldSeries untimed({.paths = {folder / "storm.h5"}});
  const auto computed = std::make_shared<const ComputedPlanes>(
      std::vector<std::string>{"cos_zenith"}, GridPoints{{60, 0, -30}, {0, 180}}, 6.0, RadiationUnit::joule);
  std::vector<float> input(2UL * 6);
  CHECK_THROWS_WITH(Windows(untimed, {.computed = computed}).read_input(1, {0, 3}, input.data()),
                    (folder / "storm.h5").string() + " has no 'time', which computed channels need");
}

TEST_CASE("windows: the tensors of a sample, with the diagnostics before if they are asked for") {
  const TemporaryFolder folder;
  const FieldSeries series = series_of(folder, 4, 3);
  PairOptions options{.windows = {.channels = {0}, .forcings = {2}, .diagnostics = {1}}, .diagnostics_before = true};
  const PairDataset pairs(series, options);
  const std::vector<TensorSpec> layout = pairs.layout();
  REQUIRE(layout.size() == 3);
  CHECK(layout[0].shape == Shape{2, 3, 2});
  CHECK(layout[1].shape == Shape{2, 3, 2});
  CHECK(layout[2].name == "before");
  std::vector<float> input(12), target(12), before(6);
  const std::array<void*, 3> to{input.data(), target.data(), before.data()};
  pairs.read({.sample = 1}, to);
  CHECK(input[6] == field_value(0, 1, 2, 0, 0));
  CHECK(target[0] == field_value(0, 2, 0, 0, 0));
  CHECK(target[6] == field_value(0, 2, 1, 0, 0));
  CHECK(before[0] == field_value(0, 1, 1, 0, 0));
  options.diagnostics_before = false;
  CHECK(PairDataset(series, options).layout().size() == 2);
}
