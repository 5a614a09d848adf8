// What files say about their fields: units and time are read wherever they stand, and contradictions are refused by
// name.
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "data/fields/describe.h"
#include "data/fields/field_file.h"
#include "data/fields/field_labels.h"
#include "data/fields/field_series.h"
#include "data/fields/layout.h"
#include "data/fields/statistics.h"
#include "data/files/hdf5.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;
using testing::FieldsShape;
using testing::write_labelled_fields;

namespace {

constexpr FieldsShape kShape = {4, 2, 2, 2};
const std::vector<std::string> kNames = {"t2m", "u10"};

// A file of two channels with something more beside the fields.
template <class More>
std::string file_with(const testing::TemporaryFolder& folder, const More& more) {
  const std::string path = folder / "2001.h5";
  auto file = hdf5::File::create(path);
  file.write("fields", kShape, std::span<const float>(testing::field_values(kShape)));
  more(file);
  file.close();
  return path;
}

std::vector<std::string> units_of(const std::string& path) {
  return FieldSeries({.paths = {path}}).labels().units;
}

std::string labels_refusal(const std::vector<std::string>& paths) {
  try {
    const FieldSeries dataset({.paths = paths});
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("labels: units are read wherever a file has them") {
  const testing::TemporaryFolder folder;
  using Units = std::vector<std::string>;
  const Units units = {"K", "m s**-1"};
  const auto names = [](hdf5::File& file) { file.write("channel", kNames); };
  CHECK(units_of(file_with(folder, [&](hdf5::File& f) { f.write("units", units); })) == units);
  CHECK(units_of(file_with(folder, [&](hdf5::File& f) { f.write("channel_units", units); })) == units);
  CHECK(units_of(file_with(folder, [&](hdf5::File& f) { f.write_attribute("fields", "units", units); })) == units);
  CHECK(units_of(file_with(folder, [&](hdf5::File& f) { f.write_attribute("fields", "units", "K, m s**-1"); })) ==
        units);
  CHECK(units_of(file_with(folder, [&](hdf5::File& f) {
          names(f);
          f.write_attribute("channel", "units", "K,m s**-1");
        })) == units);
  CHECK(units_of(file_with(folder, [&](hdf5::File& f) { f.write_attribute("fields", "units", "K"); })) ==
        Units{"K", "K"});
  CHECK(units_of(file_with(folder, [&](hdf5::File& f) { f.write("units", Units{"K", "unknown"}); })) == Units{"K", ""});
  const auto said_nothing = [](const Units& read) { return read.empty() || read == Units{"", ""}; };
  CHECK(said_nothing(units_of(file_with(folder, names))));
  CHECK(said_nothing(units_of(file_with(folder, [&](hdf5::File& f) {
    names(f);
    f.write_attribute("channel", "units", "1");  // of the axis, not of the fields
  }))));

  const std::string path = file_with(folder, [&](hdf5::File& f) { f.write("units", Units{"K", "K", "K"}); });
  CHECK(labels_refusal({path}) == path + ": 'units' has 3 entries, 'fields' has shape (4, 2, 2, 2)");
}

TEST_CASE("labels: files of one data set must agree in units and time step") {
  const testing::TemporaryFolder folder;
  const std::string first = folder / "2001.h5", second = folder / "2002.h5";
  write_labelled_fields(first, kShape, {.names = kNames, .units = {"K", "m/s"}, .hours = {0, 6, 12, 18}});
  write_labelled_fields(second, kShape, {.units = {"degC", "m s-1"}});
  CHECK(labels_refusal({first, second}) == second + ": channel t2m is in degC, but in K in the files before it");
  write_labelled_fields(second, kShape, {.units = {"kelvin", "m s-1"}, .hours = {8760, 8761, 8762, 8763}});
  CHECK(labels_refusal({first, second}) == second + ": its steps are 1 hour apart, but 6 hours in the files before it");
  write_labelled_fields(second, kShape, {.units = {"kelvin", "m s-1"}, .hours = {8760, 8766, 8772, 8778}});
  CHECK(labels_refusal({first, second}) == "accepted");
  write_labelled_fields(second, kShape, {.names = kNames});
  CHECK(labels_refusal({first, second}) == "accepted");
  CHECK(FieldSeries({.paths = {second, first}}).labels().step_hours == 6);
}

TEST_CASE("labels: time that stands still or goes back is refused by file and step") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  write_labelled_fields(path, kShape, {.hours = {0, 6, 6, 12}});
  CHECK(labels_refusal({path}) == path + ": 'time': steps 1 and 2 have one time, 2001-01-01T06:00");
  write_labelled_fields(path, kShape, {.hours = {0, 6, 0, 6}});
  CHECK(labels_refusal({path}) == path + ": 'time': goes back from 2001-01-01T06:00 to 2001-01-01T00:00 at step 2");
}

TEST_CASE("labels: the regular step is the most common one, however the times are stored") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  const auto step_hours = [&] { return FieldSeries({.paths = {path}}).labels().step_hours; };
  write_labelled_fields(path, {7, 1, 1, 1}, {.hours = {0, 744, 745, 746, 770, 771, 772}});
  CHECK(step_hours() == 1);
  CHECK(FieldSeries({.paths = {path}}).file(0).time()->holes() == std::vector<std::int64_t>{0, 3});
  write_labelled_fields(path, {3, 1, 1, 1}, {.hours = {0, 6, 30}});
  CHECK(step_hours() == 6);
  write_labelled_fields(path, {1, 1, 1, 1}, {.hours = {6}});
  CHECK(step_hours() == 0);

  // Hours as days since 1900, in fp32: each value is off by up to three minutes.
  std::vector<float> days;
  for (int t = 0; t < 200; ++t) days.push_back(static_cast<float>(43000 + t / 24.0));
  const FieldsShape shape = {200, 1, 1, 1};
  auto file = hdf5::File::create(path);
  file.write("fields", shape, std::span<const float>(testing::field_values(shape)));
  file.write("time", std::array<std::int64_t, 1>{200}, std::span<const float>(days));
  file.write_attribute("time", "units", "days since 1900-01-01");
  file.close();
  CHECK(FieldSeries({.paths = {path}}).file(0).time()->holes().empty());
  CHECK(step_hours() == testing::Approx(1).epsilon(1e-3));
}

TEST_CASE("labels: a step may be off by one percent, and many together by a quarter of a step") {
  const TimeUnits units("hours since 2001-01-01", "", "f");
  const auto axis = [&](std::vector<double> hours, bool single = false) {
    return TimeAxis(std::move(hours), units, single, "f");
  };
  using Steps = std::vector<std::int64_t>;
  CHECK(axis({0, 6, 12, 18.05, 24}).holes().empty());
  CHECK(axis({0, 6, 12, 18.07, 24}).holes() == Steps{2, 3});
  CHECK(axis({0, 6, 12, 17.93, 24}).holes() == Steps{2, 3});
  CHECK(axis({0}).step_hours() == 0);
  CHECK(axis({0}).holes().empty());
  CHECK(axis({3, 7}).step_hours() == 4);
  CHECK(axis({0, 1, 4, 5, 8}).step_hours() == 1);  // as often as three: the smaller one
  CHECK(axis({0, 3, 4, 7, 8}).step_hours() == 1);
  CHECK(axis({0, 3, 4, 7, 10}).step_hours() == 3);
  CHECK(axis({0, 6, 12}).hours_since_1970(1) == 271752 + 6);
  CHECK(axis({0, 6, 12}).at(2).iso() == "2001-01-01T12:00");

  // Steps of an hour, and one that is longer.
  const auto regular = [&](int steps, double longer) {
    std::vector<double> hours(101);
    for (std::size_t i = 1; i < hours.size(); ++i) hours[i] = hours[i - 1] + (i == 10 ? 1 + longer : 1);
    return axis(hours).regular(5, 5 + steps);
  };
  CHECK(regular(10, 0.09));
  CHECK_FALSE(regular(10, 0.11));
  CHECK(regular(20, 0.19));
  CHECK_FALSE(regular(20, 0.21));
  CHECK(regular(90, 0.24));
  CHECK_FALSE(regular(90, 0.26));
  CHECK_FALSE(regular(90, -0.26));
  CHECK(regular(4, 0.5));  // ends before it

  CHECK_THROWS_WITH(axis({0, 6, 6}), "f: steps 1 and 2 have one time, 2001-01-01T06:00");
  CHECK_THROWS_WITH(axis({0, 6, 3, 9}), "f: goes back from 2001-01-01T06:00 to 2001-01-01T03:00 at step 2");
}

TEST_CASE("labels: time steps are the same within a thousandth") {
  const auto same = [](double a, double b) {
    try {
      check_labels({{}, {}, a}, "a", {{}, {}, b}, "b");
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  CHECK(same(6.005, 6));
  CHECK_FALSE(same(6.007, 6));
  CHECK(same(5.995, 6));
  CHECK_FALSE(same(5.993, 6));
  CHECK(same(0, 6));
  CHECK(same(6, 0));
  CHECK(hours_text(1) == "1 hour");
  CHECK(hours_text(0.25) == "0.25 hours");
  CHECK(hours_text(0) == "0 hours");
  CHECK(to_json(FieldLabels{}).dump() == R"({"channels":null,"units":null,"step_hours":null})");
  const FieldLabels known = likely_labels({"t2m", "c1", "z500"}, {280, 0, 54000});
  CHECK(known.channel_names == std::vector<std::string>{"t2m", "c1", "z500"});
  CHECK(known.units == std::vector<std::string>{"K", "", "m2/s2"});
  CHECK(known.step_hours == 0);
  CHECK(likely_labels({"t2m", "z500"}, {15, 54000}).units == std::vector<std::string>{"", "m2/s2"});
  const auto doubts = [](const FieldLabels& labels) { return unit_warnings(labels, {"t2m", "sp"}, {15, 965}); };
  REQUIRE(doubts({}).size() == 2);
  CHECK_THAT(doubts({})[1],
             ContainsSubstring("channel sp is said to be in no unit, and its mean of 965 cannot be in Pa"));
  CHECK(doubts({.units = {"degC", "hPa"}}).empty());
  for (const char* names : {"c0", ""}) CHECK_NOTHROW(check_labels({{names}, {}, 0}, "a", {{"t2m"}, {}, 0}, "b"));
  CHECK_THROWS_WITH(check_labels({{"c1"}, {}, 0}, "a", {{"t2m"}, {}, 0}, "b"), "a: channel 0 is 'c1', but 't2m' in b");
  CHECK_THROWS_WITH(check_labels({{}, {"K", "K"}, 0}, "a", {{}, {"", "m"}, 0}, "b"),
                    "a: channel 1 is in K, but in m in b");
}

TEST_CASE("data info: what a file does not say is listed") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "storm.h5";
  testing::write_fields(path, kShape, 0, {.chunk = {1, 2, 2, 2}, .deflate = 1});
  CHECK(describe_data(path) ==
        path +
            ":\n  1 file, 4 steps of 2 channels on 2 x 2\n"
            "    storm.h5  4 steps  time unknown  compressed chunks, inflated in parallel (1, 2, 2, 2)\n"
            "  channels: c0 c1 (not named in the files)\n"
            "  latitudes: not in the files, longitudes: not in the files\n"
            "  not given: channel names, units, time, latitudes, longitudes\n"
            "statistics: none; isobar data stats PATH --out DIR makes them\n");
  write_labelled_fields(
      folder / "2001.h5", {9, 2, 2, 2},
      {.names = kNames, .units = {"K", ""}, .hours = {0, 6, 24, 48, 72, 96, 120, 126, 132}, .latitudes = {45, -45}});
  std::filesystem::remove(path);
  const std::string text = describe_data(folder.path().string());
  CHECK_THAT(text, ContainsSubstring("  units: K, ?\n  time step: 24 hours\n"
                                     "  holes in time: 2001.h5 after step 0, 1, 6 and 1 more\n"
                                     "  not given: the unit of u10, longitudes\n"));
  CHECK_THAT(text, ContainsSubstring("    2001.h5  9 steps  2001-01-01T00:00 to 2001-01-06T12:00  contiguous, pread\n"
                                     "  channels: t2m u10\n  latitudes: 45 to -45, longitudes: not in the files\n"));
}

TEST_CASE("data info: with --check all steps are read, and a hole is named") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "storm.h5";
  std::vector<float> values = testing::field_values(kShape);
  testing::write_fields(path, kShape, values);
  CHECK_THAT(describe_data(path, /*all_steps=*/true),
             ContainsSubstring("  all steps are read: no holes in the fields\n"));
  values[3 * 8 + 5] = std::numeric_limits<float>::quiet_NaN();
  testing::write_fields(path, kShape, values);
  CHECK_NOTHROW(describe_data(path));
  CHECK_THROWS_WITH(describe_data(path, /*all_steps=*/true), path + ": step 3, channel 1 holds NaN");
}

TEST_CASE("data info: statistics of a crop beside the data are told, not refused") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  testing::write_fields(path, {4, 2, 8, 6});
  const FieldSeries crop({.paths = {path}, .height = 6, .width = 6});
  write_statistics(compute_statistics(crop), 6, 6, folder.path().string());
  CHECK_THAT(describe_data(folder.path().string()),
             ContainsSubstring("  time means: 2 x 6 x 6, of a crop: they fit img_size up to [6,6]\n"));
  write_statistics(compute_statistics(FieldSeries({.paths = {path}, .height = 8, .width = 5})), 8, 5,
                   folder.path().string());
  CHECK_THAT(describe_data(folder.path().string()),
             ContainsSubstring("  time means: 2 x 8 x 5, of a crop: they fit img_size up to [8,5]\n"));
  write_statistics(compute_statistics(FieldSeries({.paths = {path}})), 8, 6, folder.path().string());
  CHECK_THAT(describe_data(folder.path().string()), ContainsSubstring("  time means: 2 x 8 x 6 or larger\n"));
}

TEST_CASE("data info: statistics of other variables than the data's are refused") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  write_labelled_fields(path, kShape, {.names = kNames});
  write_statistics(compute_statistics(FieldSeries({.paths = {path}})), 2, 2, folder.path().string());
  CHECK_NOTHROW(describe_data(folder.path().string()));
  write_labelled_fields(path, kShape, {.names = {"u10", "t2m"}});
  CHECK_THROWS_WITH(describe_data(folder.path().string()),
                    ContainsSubstring("channel 0 is 'u10', but 't2m' in " + (folder.path() / kLabelsFile).string()));
}

TEST_CASE("labels: what is said in two places is compared, what is not said is not") {
  const FieldLabels hourly{{"t2m", "u10"}, {"K", "m/s"}, 1};
  const auto refusal_of = [&](const FieldLabels& labels) {
    try {
      check_labels(labels, "X.h5", hourly, "stats.json");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(refusal_of({}) == "accepted");
  CHECK(refusal_of({{"t2m", "u10"}, {"kelvin", ""}, 0}) == "accepted");
  CHECK(refusal_of({{"c0", "c1"}, {}, 1.0000001}) == "accepted");
  CHECK(refusal_of({{"u10", "t2m"}, {}, 0}) == "X.h5: channel 0 is 'u10', but 't2m' in stats.json");
  CHECK(refusal_of({{}, {"degC"}, 0}) == "X.h5: channel t2m is in degC, but in K in stats.json");
  CHECK(refusal_of({{}, {}, 6}) == "X.h5: its steps are 6 hours apart, but 1 hour in stats.json");

  FieldLabels some{{}, {"", "knots"}, 0};
  complete_labels(some, hourly);
  CHECK(some.channel_names == hourly.channel_names);
  CHECK(some.units == std::vector<std::string>{"K", "knots"});
  CHECK(some.step_hours == 1);

  const FieldLabels back = labels_from_json(nlohmann::json::parse(to_json(hourly).dump()), "stats.json");
  CHECK(back.channel_names == hourly.channel_names);
  CHECK(back.units == hourly.units);
  CHECK(back.step_hours == 1);
  CHECK(to_json(FieldLabels{{}, {"K", ""}, 0}).dump() == R"({"channels":null,"units":["K",null],"step_hours":null})");
  for (const char* bad :
       {"3", R"({"units": 3})", R"({"units": [3]})", R"({"step_hours": "6"})", R"({"step_hours": -6})"})
    CHECK_THROWS_WITH(labels_from_json(nlohmann::json::parse(bad), "stats.json"), ContainsSubstring("stats.json"));
}

TEST_CASE("data info: tells units, time step and holes, and what is not said") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  write_labelled_fields(path, kShape,
                        {.names = kNames, .units = {"K", ""}, .hours = {0, 6, 12, 48}, .latitudes = {10, 0}});
  const std::string text = describe_data(path);
  CHECK_THAT(text, ContainsSubstring("  units: K, ?\n"));
  CHECK_THAT(text, ContainsSubstring("  time step: 6 hours\n"));
  CHECK_THAT(text, ContainsSubstring("  holes in time: 2001.h5 after step 2\n"));
  CHECK_THAT(text, ContainsSubstring("  not given: the unit of u10, longitudes\n"));
  write_labelled_fields(path, kShape, {});
  const std::string nothing = "  not given: channel names, units, time, latitudes, longitudes\n";
  CHECK_THAT(describe_data(path), ContainsSubstring(nothing));
  write_labelled_fields(folder / "2002.h5", kShape, {.hours = {0, 6, 12, 18}});  // one of two files says its time
  CHECK_THAT(describe_data(folder.path().string()), ContainsSubstring(nothing));
}

TEST_CASE("labels: sums over steps are told beside the units, and read again") {
  const FieldLabels sums{.channel_names = {"t2m", "tp"}, .units = {"K", "m"}, .step_hours = 6, .summed = {1, 4}};
  const auto json = to_json(sums);
  CHECK(json.dump() == R"({"channels":["t2m","tp"],"units":["K","m"],"step_hours":6.0,"summed":[1,4]})");
  CHECK(labels_from_json(nlohmann::json::parse(json.dump()), "f").summed == std::vector<std::int64_t>{1, 4});
  CHECK_THROWS_WITH(labels_from_json(nlohmann::json::parse(R"({"units": 3})"), "stats.json"),
                    R"(stats.json is not of the form {"channels": [...], "units": [...], "step_hours": 6})");
  CHECK_THROWS_WITH(labels_from_json(nlohmann::json::parse(R"({"step_hours": -6})"), "stats.json"),
                    "stats.json: step_hours is -6");
  CHECK(unit_warnings({}, {"t2m", "sp"}, {288, 965}) ==
        std::vector<std::string>{"channel sp is said to be in no unit, and its mean of 965 cannot be in Pa, which the "
                                 "variable of this name has: write its unit into the files"});
}

TEST_CASE("data info: folders of three sets, times between files, fill values, and statistics with a doubt") {
  const testing::TemporaryFolder folder;
  const auto day = [](double first) { return std::vector<double>{first, first + 6, first + 12, first + 18}; };
  for (const char* part : {"train", "valid", "stats"}) std::filesystem::create_directories(folder / part);
  std::vector<float> weather;  // t2m in K, sp in hPa
  for (int step = 0; step < 4; ++step)
    for (const float value : {288.0F, 965.0F}) weather.insert(weather.end(), 4, value + static_cast<float>(step));
  for (int file = 0; file < 6; ++file)  // a day, then a hole of a day
    write_labelled_fields(folder / ("train/" + std::string(1, static_cast<char>('a' + file)) + ".h5"), kShape,
                          {.names = {"t2m", "sp"}, .hours = day(48.0 * file)}, weather);
  write_statistics(compute_statistics(FieldSeries({.paths = {folder / "train"}})), 2, 2, folder / "stats");
  const std::string valid = folder / "valid/2012.h5";
  {
    auto file = hdf5::File::create(valid);
    file.write("fields", FieldsShape{366, 2, 1, 1}, std::span<const float>(testing::field_values({366, 2, 1, 1})));
    file.write_attribute("fields", "_FillValue", -9999.0F);
    file.close();
  }
  const std::string text = describe_data(folder.path().string());
  CHECK_THAT(text, ContainsSubstring("train:\n  6 files, 24 steps of 2 channels on 2 x 2\n"));
  CHECK_THAT(text, ContainsSubstring("  holes in time: a.h5 ends at 2001-01-01T18:00, b.h5 begins at 2001-01-03T00:00; "
                                     "b.h5 ends at 2001-01-03T18:00, c.h5 begins at 2001-01-05T00:00; c.h5 ends at "
                                     "2001-01-05T18:00, d.h5 begins at 2001-01-07T00:00; 2 more between files\n"));
  CHECK_THAT(text, ContainsSubstring("valid:\n  1 file, 366 steps of 2 channels on 1 x 1\n"));
  CHECK_THAT(text, ContainsSubstring("2012-01-01T00:00 to 2012-12-31T00:00 (from the file's name)"));
  CHECK_THAT(text, ContainsSubstring("  fill values: -9999\n"));
  CHECK_THAT(text, ContainsSubstring("statistics: " + (folder / "stats").string() +
                                     "\n  t2m      mean 289.5        standard deviation 1.11803\n"
                                     "  sp       mean 966.5        standard deviation 1.11803\n"
                                     "  warning: channel sp is said to be in no unit, and its mean of 966.5 cannot "
                                     "be in Pa, which the variable of this name has: write its unit into the files\n"
                                     "  time means: 2 x 2 x 2 or larger\n"));
}

TEST_CASE("labels: which list of units is believed, what blanks and words for none mean, and one unit of one channel") {
  const testing::TemporaryFolder folder;
  using Units = std::vector<std::string>;
  const auto with = [&](const auto& more) { return units_of(file_with(folder, more)); };
  CHECK(with([](hdf5::File& f) {
          f.write("channel_units", Units{"Pa", "Pa"});
          f.write("units", Units{"K", "m"});
          f.write_attribute("fields", "units", Units{"s", "s"});
        }) == Units{"K", "m"});
  CHECK(with([](hdf5::File& f) {
          f.write("channel", kNames);
          f.write_attribute("channel", "units", Units{"s", "s"});
          f.write_attribute("fields", "units", Units{"K", "m"});
        }) == Units{"K", "m"});
  CHECK(with([](hdf5::File& f) { f.write_attribute("fields", "units", "  K ,m s**-1  "); }) == Units{"K", "m s**-1"});
  CHECK(with([](hdf5::File& f) { f.write_attribute("fields", "units", ", K"); }) == Units{"", "K"});
  CHECK(with([](hdf5::File& f) { f.write_attribute("fields", "units", "K,"); }) == Units{"K", ""});
  CHECK(with([](hdf5::File& f) { f.write("units", Units{"n/a", "K"}); }) == Units{"", "K"});
  CHECK(with([](hdf5::File& f) { f.write("units", Units{"none", "K"}); }) == Units{"", "K"});
  CHECK(with([](hdf5::File& f) { f.write("units", Units{"None", "K"}); }) == Units{"None", "K"});
  CHECK(labels_refusal({file_with(folder, [](hdf5::File& f) { f.write_attribute("fields", "units", "K, m, s"); })}) ==
        std::string(folder / "2001.h5") + ": 'units of fields' has 3 entries, 'fields' has shape (4, 2, 2, 2)");

  // Of one channel the unit of `channel` is its own.
  const std::string path = folder / "one.h5";
  auto file = hdf5::File::create(path);
  const FieldsShape one{2, 1, 1, 2};
  file.write("fields", one, std::span<const float>(testing::field_values(one)));
  file.write("channel", Units{"t2m"});
  file.write_attribute("channel", "units", "K");
  file.close();
  CHECK(units_of(path) == Units{"K"});
}

TEST_CASE("labels: lists and axes beside the fields have their lengths, and no NaN") {
  const testing::TemporaryFolder folder;
  const auto refusal = [&](const auto& more) {
    const std::string path = file_with(folder, more), text = labels_refusal({path});
    return text.starts_with(path + ": ") ? text.substr(path.size() + 2) : text;
  };
  const auto axis = [](const char* name, std::vector<double> values) {
    return [name, values = std::move(values)](hdf5::File& f) {
      f.write(name, std::array{std::ssize(values)}, std::span<const double>(values));
      if (std::string(name) == "time") f.write_attribute("time", "units", "hours since 2001-01-01");
    };
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  CHECK(refusal([](hdf5::File& f) { f.write("channel", std::vector<std::string>{"a"}); }) ==
        "'channel' has 1 names, 'fields' has shape (4, 2, 2, 2)");
  CHECK(refusal(axis("time", {0, 6, 12})) == "'time' has 3 values, 'fields' has shape (4, 2, 2, 2)");
  CHECK(refusal(axis("latitude", {1, 2, 3})) == "'latitude' has 3 values, 'fields' has shape (4, 2, 2, 2)");
  CHECK(refusal(axis("lon", {1})) == "'lon' has 1 values, 'fields' has shape (4, 2, 2, 2)");
  CHECK(refusal(axis("time", {0, 6, nan, 18})) == "'time' holds NaN");
  CHECK(refusal(axis("lat", {0, nan})) == "'lat' holds NaN");
  CHECK(refusal(axis("longitude", {infinite, 0})) == "'longitude' holds NaN");
  CHECK(refusal(axis("longitude", {400, -400})) == "accepted");
  CHECK(refusal([](hdf5::File& f) {  // the short name is believed
          f.write("lat", std::array<std::int64_t, 1>{2}, std::span<const double>(std::vector<double>{50, 40}));
          f.write("latitude", std::array<std::int64_t, 1>{3}, std::span<const double>(std::vector<double>{1, 2, 3}));
        }) == "accepted");
}

TEST_CASE("data info: three holes are all told, and fill values of every file, each once, from the least") {
  const testing::TemporaryFolder folder;
  write_labelled_fields(folder / "a.h5", {5, 1, 1, 1}, {.names = {"t2m"}, .hours = {0, 6, 24, 48, 72}});
  CHECK_THAT(describe_data(folder / "a.h5"), ContainsSubstring("  time step: 24 hours\n") &&
                                                 ContainsSubstring("  holes in time: a.h5 after step 0, 1\n"));
  write_labelled_fields(folder / "a.h5", {8, 1, 1, 1}, {.names = {"t2m"}, .hours = {0, 1, 2, 4, 5, 8, 9, 12}});
  CHECK_THAT(describe_data(folder / "a.h5"), ContainsSubstring("  holes in time: a.h5 after step 2, 4, 6\n"));
  const auto write = [&](const char* name, double first, double fill, double missing) {
    auto file = hdf5::File::create((folder / name).string());
    const FieldsShape shape{2, 1, 1, 1};
    file.write("fields", shape, std::span<const float>(std::vector<float>{1, 2}));
    file.write("time", std::array<std::int64_t, 1>{2}, std::span<const double>(std::vector<double>{first, first + 6}));
    file.write_attribute("time", "units", "hours since 2001-01-01");
    file.write_attribute("fields", "_FillValue", fill);
    file.write_attribute("fields", "missing_value", missing);
    file.close();
  };
  std::filesystem::remove(folder / "a.h5");
  write("b.h5", 0, 7, 1e20);  // no field has the second one
  write("c.h5", 12, -9999, 7);
  CHECK_THAT(describe_data(folder.path().string()), ContainsSubstring("\n  fill values: -9999, 7\n"));
  // Exactly three gaps between files.
  for (int file = 0; file < 4; ++file)
    write_labelled_fields(folder / ("d" + std::to_string(file) + ".h5"), {2, 1, 1, 1},
                          {.hours = {48.0 * file, 48.0 * file + 6}});
  for (const char* name : {"b.h5", "c.h5"}) std::filesystem::remove(folder / name);
  CHECK_THAT(describe_data(folder.path().string()),
             ContainsSubstring("d2.h5 ends at 2001-01-05T06:00, d3.h5 begins at 2001-01-07T00:00\n") &&
                 !ContainsSubstring("more between files") && !ContainsSubstring("fill values"));
}
