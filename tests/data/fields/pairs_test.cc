// Which pairs of steps are samples, and what a sample holds.
#include "data/fields/pairs.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/batch.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using Order = std::vector<std::int64_t>;
using testing::ContainsSubstring;

TEST_CASE("pairs: ragged years, ranges, and pairs that never span two files") {
  const testing::TemporaryFolder folder;
  testing::write_fields(folder / "2001.h5", {5, 1, 2, 2});
  testing::write_fields(folder / "2002.h5", {3, 1, 2, 2});
  testing::write_fields(folder / "2003.h5", {1, 1, 2, 2});  // too short for a pair
  testing::write_fields(folder / "2004.h5", {4, 1, 2, 2});
  const FieldSeries all({.paths = {folder.path()}});
  CHECK(list_samples(all, SamplerKind::all_pairs) == Order{0, 1, 2, 3, 5, 6, 9, 10, 11});
  CHECK(list_samples(all, SamplerKind::all_pairs, 4) == Order{0, 1, 2, 3});
  CHECK(list_samples(all, SamplerKind::all_pairs, 100).size() == 9);

  const FieldSeries wide({.paths = {folder.path()}, .dt = 2});
  CHECK(list_samples(wide, SamplerKind::all_pairs) == Order{0, 1, 2, 5, 9, 10});

  const FieldSeries part({.paths = {folder.path()}, .range = StepRange{2, 7}});
  CHECK(list_samples(part, SamplerKind::all_pairs) == Order{2, 3, 5});  // 4 and 6 have no partner within the range

  const FieldSeries too_wide({.paths = {folder.path()}, .dt = 5});
  CHECK_THROWS_WITH(list_samples(too_wide, SamplerKind::all_pairs),
                    (folder / "2001.h5").string() +
                        ": no two steps dt = 5 apart lie in the range asked for, in one file or in files that follow "
                        "each other, without a hole in time between them");
}

TEST_CASE("pairs: the tutorial's index rule, quirks and all") {
  const testing::TemporaryFolder folder;
  testing::write_fields(folder / "2001.h5", {6, 1, 2, 2});
  testing::write_fields(folder / "2002.h5", {4, 1, 2, 2});
  const FieldSeries one({.paths = {folder.path()}});
  CHECK(list_samples(one, SamplerKind::tutorial) == Order{1, 1, 2, 3, 4, 1, 7, 7, 8, 7});
  CHECK(list_samples(one, SamplerKind::tutorial, 3) == Order{1, 1, 2});
  const FieldSeries two({.paths = {folder / "2001.h5"}, .dt = 2});
  CHECK(list_samples(two, SamplerKind::tutorial) == Order{2, 3, 2, 3, 2, 3});
  const FieldSeries short_year({.paths = {folder / "2002.h5"}, .dt = 2});
  CHECK_THROWS_WITH(list_samples(short_year, SamplerKind::tutorial),
                    "sampler tutorial: " + (folder / "2002.h5").string() +
                        " has 4 steps in range, fewer than the 3 dt = 6 that its rule needs");
}

TEST_CASE("pairs: pairs over a hole in time are left out and counted, with every rule") {
  const testing::TemporaryFolder folder;
  // Steps 0 to 3, then a day is missing, steps 4 to 6; a clock that was an hour early at step 8.
  testing::write_labelled_fields(folder / "2001.h5", {10, 1, 2, 2}, {.hours = {0, 6, 12, 18, 48, 54, 60, 66, 71, 78}});
  testing::write_labelled_fields(folder / "2002.h5", {4, 1, 2, 2}, {.hours = {8760, 8766, 8772, 8778}});
  const std::string path = folder / "2001.h5";
  const FieldSeries one({.paths = {folder.path()}});
  CHECK(list_samples(one, SamplerKind::all_pairs) == Order{0, 1, 2, 4, 5, 6, 10, 11, 12});
  CHECK(describe_left_out(one, SamplerKind::all_pairs) == "3 pairs left out: 3 holes in time in " + path);
  CHECK(list_samples(one, SamplerKind::all_pairs, 4) == Order{0, 1, 2, 4});
  const FieldSeries two({.paths = {path}, .dt = 2});
  CHECK(list_samples(two, SamplerKind::all_pairs) == Order{0, 1, 4, 5, 7});  // 66 to 78 are two regular steps

  const FieldSeries part({.paths = {folder.path()}, .range = StepRange{1, 6}});
  CHECK(list_samples(part, SamplerKind::all_pairs) == Order{1, 2, 4});
  CHECK(describe_left_out(part, SamplerKind::all_pairs) == "1 pair left out: 1 hole in time in " + path);

  CHECK(list_samples(one, SamplerKind::tutorial) == Order{1, 1, 2, 4, 5, 6, 1, 11, 11, 12, 11});
  CHECK(describe_left_out(one, SamplerKind::tutorial) == "3 pairs left out: 3 holes in time in " + path);

  const FieldSeries whole({.paths = {folder / "2002.h5"}});
  CHECK(describe_left_out(whole, SamplerKind::all_pairs) == "");
  const FieldSeries none({.paths = {path}, .range = StepRange{7, 9}});
  CHECK_THROWS_WITH(list_samples(none, SamplerKind::all_pairs), ContainsSubstring("without a hole in time"));
}

TEST_CASE("pairs: files with holes are named, three at most") {
  const testing::TemporaryFolder folder;
  for (int year = 2001; year <= 2005; ++year) {
    const double start = 8760.0 * (year - 2001);
    std::vector<double> hours = {start, start + 6, start + 12, start + 18, start + 48};
    if (year == 2002) hours = {start, start + 6, start + 48, start + 54, start + 96};
    testing::write_labelled_fields(folder / (std::to_string(year) + ".h5"), {5, 1, 2, 2}, {.hours = hours});
  }
  const auto name = [&](int year) { return std::string(folder / (std::to_string(year) + ".h5")); };
  CHECK(describe_left_out(FieldSeries({.paths = {folder.path()}}), SamplerKind::all_pairs) ==
        "6 pairs left out: 1 hole in time in " + name(2001) + ", 2 holes in time in " + name(2002) +
            ", 1 hole in time in " + name(2003) + ", and more in 2 other files");
}

TEST_CASE("pairs: a sample is the fields of its step and of the step dt later, and the time of the first") {
  const testing::TemporaryFolder folder;
  const testing::FieldsShape shape{6, 2, 2, 3};
  testing::write_labelled_fields(folder / "2001.h5", shape, {.hours = {0, 6, 12, 18, 24, 30}});
  const FieldSeries steps({.paths = {folder / "2001.h5"}, .dt = 2, .range = StepRange{1, 6}});
  const PairDataset pairs(steps, {.time_features = true});
  REQUIRE(pairs.samples() == 3);
  CHECK(pairs.step_of(0) == 1);
  CHECK(pairs.step_of(2) == 3);
  CHECK_THROWS_WITH(pairs.step_of(3), ContainsSubstring("sample 3 is not one of the 3 of"));
  CHECK_THROWS_AS(pairs.step_of(-1), Error);

  const std::vector<TensorSpec> layout = pairs.layout();
  REQUIRE(layout.size() == 3);
  CHECK(layout[0].name == "input");
  CHECK(layout[1].name == "target");
  CHECK(layout[1].shape == Shape{2, 2, 3});
  CHECK(layout[2].shape == Shape{kTimeFeatures});
  CHECK(layout[2].dtype == DType::fp64);

  const Batch batch = read_batch(pairs, Order{2, 0});
  std::vector<float> expected(12);
  for (const auto& [row, step] : {std::array<std::int64_t, 2>{0, 3}, {1, 1}}) {
    for (const auto& [name, at] : {std::pair<const char*, std::int64_t>{"input", step}, {"target", step + 2}}) {
      steps.read_step(at, expected.data());
      const float* fields = tensor_of(batch, name).data_as<float>() + row * 12;
      CHECK(std::vector<float>(fields, fields + 12) == expected);
    }
    const auto features = steps.time_of(step).features();
    for (std::size_t k = 0; k < features.size(); ++k)
      CHECK(tensor_of(batch, "time").data_as<double>()[row * kTimeFeatures + static_cast<std::int64_t>(k)] ==
            features[k]);
  }
}

TEST_CASE("pairs: windows of several steps lie in the range without a hole, whatever the rule") {
  const testing::TemporaryFolder folder;
  // Steps 0 to 3, then a day is missing, steps 4 to 7; a clock that was an hour early at step 8.
  testing::write_labelled_fields(folder / "2001.h5", {10, 1, 2, 2}, {.hours = {0, 6, 12, 18, 48, 54, 60, 66, 71, 78}});
  testing::write_labelled_fields(folder / "2002.h5", {8, 1, 2, 2},
                                 {.hours = {8760, 8766, 8772, 8778, 8784, 8790, 8796, 8802}});
  const std::string path = folder / "2001.h5";
  const FieldSeries one({.paths = {folder.path()}});
  const auto windows = [](const FieldSeries& series, std::int64_t steps, SamplerKind kind = SamplerKind::all_pairs) {
    return list_samples(Windows(series), kind, 0, steps);
  };
  CHECK(windows(one, 2) == Order{0, 1, 4, 5, 10, 11, 12, 13, 14, 15});
  CHECK(windows(one, 3) == Order{0, 4, 10, 11, 12, 13, 14});
  CHECK(windows(one, 7) == Order{10});
  CHECK(describe_left_out(one, SamplerKind::all_pairs, 3) ==
        "5 windows of 3 steps left out: 3 holes in time in " + path);
  CHECK_THROWS_WITH(windows(one, 8), path +
                                         ": a forecast of 8 steps of dt = 1 needs 9 steps in a row, and the longest "
                                         "stretch without a hole in time in the range asked for has 8");
  CHECK_THROWS_WITH(list_samples(Windows(one, {.history = 2}), SamplerKind::all_pairs, 0, 6),
                    ContainsSubstring("a forecast of 6 steps of dt = 1 with 2 earlier states needs 9 steps in a row"));
  const FieldSeries part({.paths = {folder.path()}, .range = StepRange{10, 14}});
  CHECK(windows(part, 3) == Order{10});
  CHECK_THROWS_WITH(windows(part, 4), ContainsSubstring("the range asked for has 4"));

  // The tutorial's rule: 8 steps give 8 windows, of which the first steps are 0 to 5.
  const FieldSeries whole({.paths = {folder / "2002.h5"}});
  CHECK(windows(whole, 2, SamplerKind::tutorial) == Order{1, 1, 2, 3, 4, 5, 1, 1});
  CHECK_THROWS_WITH(windows(whole, 7, SamplerKind::tutorial), ContainsSubstring("fewer than the 9 dt = 9"));
  const FieldSeries wide({.paths = {folder / "2002.h5"}, .dt = 2});
  CHECK(windows(wide, 2) == Order{0, 1, 2, 3});
  CHECK(Windows(wide).has_window(3, 2));
  CHECK_FALSE(Windows(wide).has_window(4, 2));
}

TEST_CASE("pairs: a window holds every step's target and the forcings and time of its input, a view fewer") {
  const testing::TemporaryFolder folder;
  testing::Labels labels{.names = {"a", "f"}};
  for (int step = 0; step < 8; ++step) labels.hours.push_back(6 * step);
  testing::write_labelled_fields(folder / "2001.h5", {8, 2, 2, 3}, labels);
  const FieldSeries steps({.paths = {folder / "2001.h5"}, .dt = 2});
  const PairDataset windows(steps, {.time_features = true, .windows = {.channels = {0}, .forcings = {1}}, .steps = 3});
  CHECK(windows.samples() == 2);
  std::vector<std::string> names;
  for (const TensorSpec& tensor : windows.layout()) names.push_back(tensor.name);
  CHECK(names == std::vector<std::string>{"input", "target", "time", "target.2", "given.2", "time.2", "target.3",
                                          "given.3", "time.3"});
  const Batch batch = read_batch(windows, Order{1});
  const auto first = [&](const std::string& name) {
    return static_cast<double>(tensor_of(batch, name).to_vector()[0]);
  };
  const auto value = [](int step, int channel) {
    return static_cast<double>(testing::field_value(0, step, channel, 0, 0));
  };
  CHECK(first("input") == value(1, 0));
  for (const int k : {0, 1, 2}) {
    CHECK(first(at_step("target", k)) == value(3 + 2 * k, 0));
    if (k > 0) CHECK(first(at_step("given", k)) == value(1 + 2 * k, 1));  // at the time of the step's input
    CHECK(tensor_of(batch, at_step("time", k)).to_vector()[0] == steps.time_of(1 + 2 * k).features()[0]);
  }
  const PairDataset view = windows.shortened(2);
  CHECK(view.samples() == 2);  // those of the longer windows
  CHECK(view.layout().size() == 6);
  CHECK(tensor_of(read_batch(view, Order{1}), "target.2").to_vector() == tensor_of(batch, "target.2").to_vector());
  CHECK(view.band({1, 1})->layout()[4].shape == Shape{1, 1, 3});
  CHECK_THROWS_WITH(view.shortened(3), ContainsSubstring("windows of 2 steps have no 3"));
}

TEST_CASE("pairs: a band of every picture's rows, also of a band, with the same samples and times") {
  const testing::TemporaryFolder folder;
  const testing::FieldsShape shape{6, 2, 5, 3};
  testing::write_labelled_fields(folder / "2001.h5", shape, {.hours = {0, 6, 12, 18, 24, 30}});
  const FieldSeries steps({.paths = {folder / "2001.h5"}});
  const PairDataset whole(steps, {.time_features = true});
  const auto check = [&](const Dataset& band, std::int64_t first, std::int64_t count) {
    CHECK(band.samples() == whole.samples());
    CHECK(band.name() == whole.name());
    CHECK(band.layout()[0].shape == Shape{2, count, 3});
    CHECK(band.layout()[1].shape == Shape{2, count, 3});
    const Batch got = read_batch(band, Order{3, 0}), all = read_batch(whole, Order{3, 0});
    for (const char* name : {"input", "target"}) {
      const float *rows = tensor_of(got, name).data_as<float>(), *fields = tensor_of(all, name).data_as<float>();
      for (std::int64_t plane = 0; plane < 4; ++plane)
        for (std::int64_t i = 0; i < count * 3; ++i)
          CHECK(rows[plane * count * 3 + i] == fields[(plane * 5 + first) * 3 + i]);
    }
    CHECK(tensor_of(got, "time").to_vector() == tensor_of(all, "time").to_vector());
  };
  CHECK(whole.rows().count == 5);
  check(PairDataset(steps, {.time_features = true, .rows = RowBand{1, 2}}), 1, 2);
  check(*whole.band({0, 5}), 0, 5);
  check(*whole.band({4, 1}), 4, 1);
  check(*whole.band({1, 4})->band({2, 2}), 3, 2);
  for (const RowBand& rows : {RowBand{-1, 2}, RowBand{0, 0}, RowBand{4, 2}})
    CHECK_THROWS_WITH(whole.band(rows), ContainsSubstring(") are no band of 5 rows"));
  CHECK_THROWS_WITH(whole.band({1, 2})->band({1, 2}), ContainsSubstring("rows [1, 3) are no band of 2 rows"));
  CHECK_THROWS_WITH(PairDataset(steps, {.rows = RowBand{3, 3}}), ContainsSubstring("no band of the 5 rows"));
}

TEST_CASE("pairs: no time unless it is asked for, a limit, and a name for messages") {
  const testing::TemporaryFolder folder;
  testing::write_fields(folder / "2001.h5", {5, 1, 2, 2});
  testing::write_fields(folder / "2002.h5", {5, 1, 2, 2});
  const FieldSeries one({.paths = {folder / "2001.h5"}}), two({.paths = {folder.path()}});
  CHECK(PairDataset(one).layout().size() == 2);
  CHECK(PairDataset(two).samples() == 8);
  CHECK(PairDataset(two, {.limit = 3}).samples() == 3);
  CHECK(PairDataset(two, {.kind = SamplerKind::tutorial}).samples() == 10);
  CHECK(PairDataset(one).name() == (folder / "2001.h5").string());
  CHECK(PairDataset(two).name() == (folder / "2001.h5").string() + " and the files beside it");
}
