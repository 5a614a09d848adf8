// What files say about their fields: units and time are read wherever they stand, and contradictions are refused by
// name.
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/era5/describe.h"
#include "data/era5/era5.h"
#include "data/era5/field_file.h"
#include "data/era5/field_labels.h"
#include "data/era5/hdf5.h"
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
  return Era5Dataset({.paths = {path}}).labels().units;
}

std::string refusal(const std::vector<std::string>& paths) {
  try {
    const Era5Dataset dataset({.paths = paths});
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
  CHECK(refusal({path}) == path + ": 'units' has 3 entries, 'fields' has shape (4, 2, 2, 2)");
}

TEST_CASE("labels: files of one data set must agree in units and time step") {
  const testing::TemporaryFolder folder;
  const std::string first = folder / "2001.h5", second = folder / "2002.h5";
  write_labelled_fields(first, kShape, {.names = kNames, .units = {"K", "m/s"}, .hours = {0, 6, 12, 18}});
  write_labelled_fields(second, kShape, {.units = {"degC", "m s-1"}});
  CHECK(refusal({first, second}) == second + ": channel t2m is in degC, but in K in the files before it");
  write_labelled_fields(second, kShape, {.units = {"kelvin", "m s-1"}, .hours = {8760, 8761, 8762, 8763}});
  CHECK(refusal({first, second}) == second + ": its steps are 1 hour apart, but 6 hours in the files before it");
  write_labelled_fields(second, kShape, {.units = {"kelvin", "m s-1"}, .hours = {8760, 8766, 8772, 8778}});
  CHECK(refusal({first, second}) == "accepted");
  write_labelled_fields(second, kShape, {.names = kNames});
  CHECK(refusal({first, second}) == "accepted");
  CHECK(Era5Dataset({.paths = {second, first}}).labels().step_hours == 6);
}

TEST_CASE("labels: time that stands still or goes back is refused by file and step") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  write_labelled_fields(path, kShape, {.hours = {0, 6, 6, 12}});
  CHECK(refusal({path}) == path + ": 'time': steps 1 and 2 have one time, 2001-01-01T06:00");
  write_labelled_fields(path, kShape, {.hours = {0, 6, 0, 6}});
  CHECK(refusal({path}) == path + ": 'time': goes back from 2001-01-01T06:00 to 2001-01-01T00:00 at step 2");
}

TEST_CASE("labels: the regular step is the most common one, however the times are stored") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  const auto step_hours = [&] { return Era5Dataset({.paths = {path}}).labels().step_hours; };
  write_labelled_fields(path, {7, 1, 1, 1}, {.hours = {0, 744, 745, 746, 770, 771, 772}});
  CHECK(step_hours() == 1);
  CHECK(Era5Dataset({.paths = {path}}).file(0).time()->holes() == std::vector<std::int64_t>{0, 3});
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
  CHECK(Era5Dataset({.paths = {path}}).file(0).time()->holes().empty());
  CHECK(step_hours() == testing::Approx(1).epsilon(1e-3));
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
  CHECK_THAT(text, ContainsSubstring("  says nothing of: the unit of u10, longitudes\n"));
  write_labelled_fields(path, kShape, {});
  CHECK_THAT(describe_data(path),
             ContainsSubstring("  says nothing of: channel names, units, time, latitudes, longitudes\n"));
}
