// Fields of named variables: axes in any order, rows turned north to south, levels as names, packed numbers, and what
// is no channel. The files are NetCDF-4 as HDF5 writes it; tests/data/files/stored_arrays_test.cc has other formats.
#include "data/fields/variable_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/fields/constants.h"
#include "data/fields/describe.h"
#include "data/fields/field_axes.h"
#include "data/fields/field_series.h"
#include "data/fields/packing.h"
#include "data/fields/preliminary.h"
#include "data/files/stored_arrays.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"
#include "tests/harness/variable_file.h"

using namespace isobar;
using testing::ContainsSubstring;
using testing::TemporaryFolder;

namespace {

using Numbers = std::vector<double>;
using Names = std::vector<std::string>;

constexpr int kSteps = 3, kLevels = 2, kRows = 4, kColumns = 3;

// Every value tells its step, level, row counted from the north, and column.
double value_at(int step, int level, int row, int column) {
  return 1000 * step + 100 * level + 10 * row + column;
}

struct TestFile : testing::VariableFile {
  using VariableFile::VariableFile;

  // The usual axes, the rows in this direction.
  void usual_axes(bool northwards = false) {
    axis("time", {0, 6, 12}, "hours since 2001-01-01");
    axis("level", {500, 850}, "millibars");
    axis("latitude", northwards ? Numbers{-30, 0, 30, 60} : Numbers{60, 30, 0, -30}, "degrees_north");
    axis("longitude", {0, 120, 240}, "degrees_east");
  }
};

std::vector<float> step_of(const FieldSeries& series, std::int64_t step) {
  std::vector<float> fields(static_cast<std::size_t>(series.values()));
  series.read_step(step, fields.data());
  return fields;
}

std::string fields_refusal(const std::string& path) {
  try {
    FieldSeries({.paths = {path}});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("variables: axes lie in any order, and rows are turned north to south") {
  const TemporaryFolder folder;
  const std::vector<Names> orders{{"time", "level", "latitude", "longitude"},
                                  {"time", "level", "longitude", "latitude"},
                                  {"level", "latitude", "longitude", "time"},
                                  {"longitude", "time", "latitude", "level"}};
  for (const bool northwards : {false, true}) {
    for (std::size_t order = 0; order < orders.size(); ++order) {
      const std::string path = folder / (std::to_string(order) + (northwards ? "n.nc" : "s.nc"));
      TestFile out(path);
      out.usual_axes(northwards);
      out.variable("u", orders[order], [&](std::map<std::string, int>& at) {
        const int row = northwards ? kRows - 1 - at["latitude"] : at["latitude"];
        return value_at(at["time"], at["level"], row, at["longitude"]);
      });
      out.file.write_attribute("u", "units", "m s**-1");
      out.file.close();

      const FieldSeries series({.paths = {path}, .height = 3, .width = 2});
      CHECK(series.channel_names() == Names{"u500", "u850"});
      CHECK(series.latitudes() == Numbers{60, 30, 0});
      CHECK(series.longitudes() == Numbers{0, 120});
      CHECK(series.labels().units == Names{"m s**-1", "m s**-1"});
      CHECK(series.labels().step_hours == 6);
      CHECK(series.time_of(1).iso() == "2001-01-01T06:00");
      const std::vector<float> fields = step_of(series, 2);
      for (int level = 0; level < kLevels; ++level)
        for (int row = 0; row < 3; ++row)
          for (int column = 0; column < 2; ++column)
            CHECK(fields[static_cast<std::size_t>((level * 3 + row) * 2 + column)] ==
                  static_cast<float>(value_at(2, level, row, column)));
      std::vector<float> band(2UL * 2);  // one row of both levels
      series.read_step(1, {2, 1}, band.data());
      CHECK(band[1] == static_cast<float>(value_at(1, 0, 2, 1)));
      CHECK(band[2] == static_cast<float>(value_at(1, 1, 2, 0)));
    }
  }
}

TEST_CASE("variables: pressure is in hPa, model levels keep their numbers, and names are ECMWF's") {
  const TemporaryFolder folder;
  TestFile out(folder / "a.nc");
  out.usual_axes();
  out.axis("plev", {50000, 100}, "Pa");
  out.axis("hybrid", {137, 1}, "");
  const auto zero = [](std::map<std::string, int>&) { return 0; };
  out.variable("temperature", {"time", "plev", "latitude", "longitude"}, zero);
  out.variable("q", {"time", "hybrid", "latitude", "longitude"}, zero);
  out.variable("2m_temperature", {"time", "latitude", "longitude"}, zero);
  out.variable("air", {"time", "latitude", "longitude"}, zero);
  out.file.close();
  CHECK(FieldSeries({.paths = {folder / "a.nc"}}).channel_names() ==
        Names{"t2m", "air", "q_ml137", "q_ml1", "t500", "t1"});
}

TEST_CASE("variables: what cannot be a channel is left out, with the reason") {
  const TemporaryFolder folder;
  TestFile out(folder / "a.nc");
  out.usual_axes();
  out.axis("depth", {0.1, 0.5}, "m");
  out.axis("number", {0}, "");
  const auto zero = [](std::map<std::string, int>&) { return 0; };
  out.variable("stl", {"time", "depth", "latitude", "longitude"}, zero);
  out.variable("orography", {"latitude", "longitude"}, zero);
  out.variable("sp", {"time", "number", "latitude", "longitude"}, zero);  // one member only
  out.variable("mean_of_time", {"time"}, zero);
  out.file.close();
  const FieldSeries series({.paths = {folder / "a.nc"}});
  CHECK(series.channel_names() == Names{"sp"});
  CHECK(series.file(0).left_out() ==
        Names{"orography does not change with time", "stl has 2 entries on its axis 'depth'"});
  CHECK_THROWS_WITH(
      FieldSeries({.paths = {folder / "a.nc"}, .channels = {"stl"}, .choose = true}),
      ContainsSubstring("has no channel stl") && ContainsSubstring("stl has 2 entries on its axis 'depth'"));
}

TEST_CASE("variables: two variables of one short name go by their own names") {
  const TemporaryFolder folder;
  TestFile out(folder / "a.nc");
  out.usual_axes();
  out.variable("t2m", {"time", "latitude", "longitude"}, [](std::map<std::string, int>&) { return 1; });
  out.variable("2m_temperature", {"time", "latitude", "longitude"}, [](std::map<std::string, int>&) { return 2; });
  out.file.close();
  CHECK(FieldSeries({.paths = {folder / "a.nc"}}).channel_names() == Names{"2m_temperature", "t2m"});
  CHECK_THROWS_WITH(FieldSeries({.paths = {folder / "a.nc"}, .channels = {"t2m"}, .choose = true}),
                    ContainsSubstring("the name t2m fits two channels, 2m_temperature and t2m"));
}

TEST_CASE("variables: numbers are unpacked as numpy does, and fill values are compared as they are stored") {
  const TemporaryFolder folder;
  TestFile out(folder / "a.nc");
  out.usual_axes();
  const auto stored = [](std::map<std::string, int>& at) {
    return at["time"] == 1 && at["latitude"] == 2 && at["longitude"] == 1 ? -32767 : 7 * at["time"] + at["latitude"];
  };
  out.variable("t2m", {"time", "latitude", "longitude"}, stored, /*is_integer=*/true);
  const double scale = 0.0005541355226833475, offset = 271.1016745313598;
  out.file.write_attribute("t2m", "scale_factor", scale);
  out.file.write_attribute("t2m", "add_offset", offset);
  out.file.write_attribute("t2m", "_FillValue", -32767.0);
  out.file.close();
  const FieldSeries whole({.paths = {folder / "a.nc"}});
  std::vector<float> fields = step_of(whole, 2);
  for (int row = 0; row < kRows; ++row) {
    const volatile double product = (14 + row) * scale;  // rounded before the sum
    CHECK(fields[static_cast<std::size_t>(row * kColumns)] == static_cast<float>(product + offset));
  }
  CHECK_THROWS_WITH(step_of(whole, 1), ContainsSubstring("a.nc: step 1, channel t2m"));
  const FieldSeries holed({.paths = {folder / "a.nc"}, .missing = {"t2m"}});
  fields = step_of(holed, 1);
  CHECK(std::ranges::count_if(fields, [](float value) { return std::isnan(value); }) == 1);
  CHECK(std::isnan(fields[2UL * kColumns + 1]));
}

TEST_CASE("variables: fill values of numbers that are not packed are missing") {
  const TemporaryFolder folder;
  TestFile out(folder / "a.nc");
  out.usual_axes();
  out.variable("sst", {"time", "latitude", "longitude"},
               [](std::map<std::string, int>& at) { return at["latitude"] == 1 ? -999 : at["time"]; });
  out.file.write_attribute("sst", "_FillValue", -999.0);
  out.file.close();
  const std::vector<float> fields = step_of(FieldSeries({.paths = {folder / "a.nc"}, .missing = {"sst"}}), 2);
  for (std::size_t i = 0; i < fields.size(); ++i) CHECK((i / kColumns == 1 ? std::isnan(fields[i]) : fields[i] == 2));
}

TEST_CASE("packing: fills, valid ranges, unsigned bytes, and attributes that make no sense") {
  ArrayInfo array{.name = "x", .format = NumberFormat{NumberFormat::Kind::signed_integer, 1}};
  const auto numbers = [](Numbers values) { return Attribute{.numbers = std::move(values)}; };
  array.attributes = {{"scale_factor", numbers({2})},     {"add_offset", numbers({10})},
                      {"_FillValue", numbers({-1})},      {"missing_value", numbers({5, 6})},
                      {"valid_range", numbers({0, 250})}, {"_Unsigned", Attribute{.texts = {"true"}}}};
  const Packing packing = packing_of(array, "f: 'x'");
  const Numbers stored{3, -1, 5, 6, -2, -10, 120};
  std::vector<float> out(stored.size() * 2, -7.0F);
  unpack(packing, stored, 2, out.data());
  CHECK(out[0] == 16);
  for (const std::size_t missing : {1, 2, 3, 4}) CHECK(std::isnan(out[2 * missing]));  // -2 is 254, beyond the range
  CHECK(out[10] == 2 * 246 + 10);
  CHECK(out[12] == 250);
  CHECK(out[1] == -7);  // between the elements
  CHECK_FALSE(packing.is_plain());

  // 3 · 0.1 is rounded before the sum: fused, the result would be -2.8e-17.
  const volatile double product = 3 * 0.1;
  float sum = 1;
  unpack({.scale = 0.1, .offset = -product}, Numbers{3}, 1, &sum);
  CHECK(sum == 0);

  array.attributes = {{"scale_factor", numbers({1, 2})}};
  CHECK_THROWS_WITH(packing_of(array, "f: 'x'"), "f: 'x': the attribute 'scale_factor' should hold 1 number");
  array.attributes = {{"scale_factor", numbers({0})}, {"add_offset", numbers({3})}};
  CHECK_THROWS_WITH(packing_of(array, "f: 'x'"), "f: 'x': its numbers are packed with a scale of 0 and an offset of 3");
  array.attributes = {{"valid_range", numbers({0})}};
  CHECK_THROWS_WITH(packing_of(array, "f: 'x'"), "f: 'x': the attribute 'valid_range' should hold 2 numbers");
  array.attributes = {{"valid_max", Attribute{.texts = {"9"}}}};
  CHECK_THROWS_WITH(packing_of(array, "f: 'x'"), "f: 'x': the attribute 'valid_max' should hold 1 number");
  // One bound alone; both of them belong to the range.
  std::vector<float> bounded(4);
  array.attributes = {{"valid_min", numbers({2})}};
  unpack(packing_of(array, "f: 'x'"), Numbers{1, 2, 3, 100}, 1, bounded.data());
  CHECK((std::isnan(bounded[0]) && bounded[1] == 2 && bounded[2] == 3 && bounded[3] == 100));
  array.attributes = {{"valid_max", numbers({3})}};
  unpack(packing_of(array, "f: 'x'"), Numbers{-5, 2, 3, 4}, 1, bounded.data());
  CHECK((bounded[0] == -5 && bounded[1] == 2 && bounded[2] == 3 && std::isnan(bounded[3])));
  // Only "true" makes numbers unsigned, and only numbers with a sign.
  array.attributes = {{"_Unsigned", Attribute{.texts = {"false"}}}};
  CHECK(packing_of(array, "f: 'x'").is_plain());
  array.attributes = {{"_Unsigned", Attribute{.texts = {"true"}}}};
  CHECK(packing_of(array, "f: 'x'").unsigned_wrap == 256);
  array.format = NumberFormat{NumberFormat::Kind::signed_integer, 2};
  CHECK(packing_of(array, "f: 'x'").unsigned_wrap == 65536);
  array.format = NumberFormat{NumberFormat::Kind::unsigned_integer, 2};
  CHECK(packing_of(array, "f: 'x'").is_plain());
  array.attributes = {{"add_offset", numbers({std::nan("")})}};
  CHECK_THROWS_AS(packing_of(array, "f: 'x'"), Error);
  array.attributes = {{"_FillValue", numbers({std::nan("")})}};
  CHECK(packing_of(array, "f: 'x'").is_plain());
}

TEST_CASE("variables: of preliminary and final data the one that is there is taken") {
  const TemporaryFolder folder;
  TestFile out(folder / "a.nc");
  out.usual_axes();
  out.axis("expver", {1, 5}, "");
  out.variable("sp", {"time", "expver", "latitude", "longitude"}, [](std::map<std::string, int>& at) {
    const bool is_there = (at["time"] < 2) == (at["expver"] == 0);
    return is_there ? 10.0 * at["time"] + at["longitude"] : std::nan("");
  });
  out.file.close();
  const FieldSeries series({.paths = {folder / "a.nc"}});
  for (int step = 0; step < kSteps; ++step) CHECK(step_of(series, step)[2] == static_cast<float>(10 * step + 2));
  const PreliminarySteps found = find_preliminary(series);
  CHECK(describe(found, series) == "1 of 3 steps are preliminary (expver 5), the first of 2001-01-01T12:00");
}

TEST_CASE("variables: final data are taken where they are there, wherever the axis expver has them") {
  const TemporaryFolder folder;
  // Final values end with 1, preliminary ones with 5. Final: all of step 0, two points of step 1, nothing of step 2.
  for (const Numbers& order : {Numbers{1, 5}, Numbers{5, 1}}) {
    const std::string path = folder / concat("first_", order[0], ".nc");
    TestFile out(path);
    out.usual_axes();
    out.axis("expver", order, "");
    out.variable("sp", {"time", "expver", "latitude", "longitude"}, [&](std::map<std::string, int>& at) {
      const bool is_final = order[static_cast<std::size_t>(at["expver"])] == 1;
      const bool has_final = at["time"] == 0 || (at["time"] == 1 && at["latitude"] == 3 && at["longitude"] < 2);
      return is_final ? (has_final ? 10.0 * at["time"] + 1 : std::nan("")) : 10.0 * at["time"] + 5;
    });
    out.file.close();
    const FieldSeries series({.paths = {path}});
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<float> fields = step_of(series, step);
      for (std::size_t i = 0; i < fields.size(); ++i)
        CHECK(fields[i] == static_cast<float>(10 * step + (step == 0 || (step == 1 && (i == 9 || i == 10)) ? 1 : 5)));
    }
    CHECK(find_preliminary(series).count == 1);
  }
}

TEST_CASE("variables: the new CDS's files: valid_time, number, and an expver in text for each step") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& path, const Names& experiments) {
    TestFile out(path);
    out.axis("valid_time", {0, 3600, 7200}, "seconds since 2024-01-01");
    out.axis("pressure_level", {850, 500}, "hPa");
    out.axis("latitude", {60, 30, 0, -30}, "degrees_north");
    out.axis("longitude", {0, 120, 240}, "degrees_east");
    out.axis("number", {0}, "1");
    out.variable("t", {"valid_time", "pressure_level", "latitude", "longitude"}, [](std::map<std::string, int>& at) {
      return value_at(at["valid_time"], at["pressure_level"], at["latitude"], at["longitude"]);
    });
    out.file.write("expver", experiments);
    out.file.close();
    return FieldSeries({.paths = {path}});
  };
  const FieldSeries series = write(folder / "a.nc", {"0001", "0005", "0005"});
  CHECK(series.channel_names() == Names{"t850", "t500"});
  CHECK(series.time_of(2).iso() == "2024-01-01T02:00");
  CHECK(step_of(series, 1)[5] == static_cast<float>(value_at(1, 0, 1, 2)));
  CHECK(describe(find_preliminary(series), series) ==
        "2 of 3 steps are preliminary (expver 5), the first of 2024-01-01T01:00");
  const FieldSeries part({.paths = {folder / "a.nc"}, .range = StepRange{0, 2}});
  CHECK(find_preliminary(part).count == 1);
  const FieldSeries final_data = write(folder / "b.nc", {"0001", "0001", "0001"});
  CHECK(find_preliminary(final_data).is_told);
  CHECK(describe(find_preliminary(final_data), final_data) == "");
  const auto write_part = [&](const std::string& path, const Numbers& seconds, const Names& experiments) {
    TestFile out(path);
    out.axis("valid_time", seconds, "seconds since 2024-01-01");
    out.axis("latitude", {60, 30}, "degrees_north");
    out.axis("longitude", {0, 120}, "degrees_east");
    out.variable("t2m", {"valid_time", "latitude", "longitude"}, [](std::map<std::string, int>&) { return 1; });
    if (!experiments.empty()) out.file.write("expver", experiments);
    out.file.close();
  };
  write_part(folder / "first.nc", {0, 3600, 7200}, {});
  write_part(folder / "later.nc", {10800, 14400}, {"0001", "0005"});
  const FieldSeries both({.paths = {folder / "first.nc", folder / "later.nc"}});
  CHECK(describe(find_preliminary(both), both) ==
        "1 of 5 steps are preliminary (expver 5), the first of 2024-01-01T04:00");
  // One text for all steps; another text than a number is none of the two.
  const FieldSeries one = write(folder / "c.nc", {"0005"});
  CHECK(find_preliminary(one).count == 3);
  const FieldSeries other = write(folder / "d.nc", {"0005", "iekm", "5x"});
  CHECK(find_preliminary(other).count == 1);
}

TEST_CASE("variables: a step that has neither final nor preliminary values is none of the two") {
  const TemporaryFolder folder;
  TestFile out(folder / "a.nc");
  out.usual_axes();
  out.axis("expver", {5, 1}, "");
  // Step 0 has nothing, step 1 preliminary values in its last row alone, step 2 final ones in the last row alone.
  out.variable("sst", {"time", "expver", "latitude", "longitude"}, [](std::map<std::string, int>& at) {
    const bool is_there = at["time"] > 0 && at["latitude"] == 3 && (at["time"] == 1) == (at["expver"] == 0);
    return is_there ? 7.0 : std::nan("");
  });
  out.file.close();
  const FieldSeries series({.paths = {folder / "a.nc"}, .missing = {"sst"}});
  const PreliminarySteps found = find_preliminary(series);
  CHECK(found.count == 1);
  CHECK(found.first == 1);
  CHECK(describe(found, series) == "1 of 3 steps are preliminary (expver 5), the first of 2001-01-01T06:00");
  CHECK(step_of(series, 1)[9] == 7);
  CHECK(std::isnan(step_of(series, 1)[8]));
  const FieldSeries one({.paths = {folder / "a.nc"}, .missing = {"sst"}, .range = StepRange{1, 2}});
  CHECK(describe(find_preliminary(one), one) == "1 of 1 step is preliminary (expver 5), the first of 2001-01-01T06:00");
}

TEST_CASE("variables: an expver that isobar cannot read leaves it open whether data are preliminary") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, double first, int expver_axes) {
    TestFile out(folder / name);
    out.axis("time", {first, first + 6}, "hours since 2001-01-01");
    out.axis("latitude", {60, 30}, "degrees_north");
    out.axis("longitude", {0, 120}, "degrees_east");
    out.variable("t2m", {"time", "latitude", "longitude"}, [](std::map<std::string, int>&) { return 1; });
    if (expver_axes == 1)
      out.file.write("expver", std::array<std::int64_t, 1>{2}, std::span<const double>(std::array{1.0, 5.0}));
    if (expver_axes == 2)
      out.file.write("expver", std::array<std::int64_t, 2>{2, 1}, std::span<const double>(std::array{1.0, 5.0}));
    out.file.close();
    return (folder / name).string();
  };
  const std::string first = write("a.nc", 0, 2), second = write("b.nc", 12, 1), third = write("c.nc", 24, 2);
  const std::string unknown = " an expver whose text isobar does not read: whether its data are preliminary is unknown";
  const auto told = [&](const std::vector<std::string>& paths) {
    const FieldSeries series({.paths = paths});
    return describe(find_preliminary(series), series);
  };
  CHECK(told({first}) == first + " has" + unknown);
  CHECK(told({first, third}) == first + ", " + third + " have" + unknown);
  CHECK(told({first, second}) ==
        "1 of 4 steps are preliminary (expver 5), the first of 2001-01-01T18:00; " + first + " has" + unknown);
  CHECK(told({second}) == "1 of 2 steps are preliminary (expver 5), the first of 2001-01-01T18:00");
}

TEST_CASE("variables: files that fit nothing are refused in one sentence") {
  const TemporaryFolder folder;
  const auto zero = [](std::map<std::string, int>&) { return 0; };
  {
    TestFile out(folder / "flat.nc");
    out.axis("x", {1, 2}, "m");
    out.variable("height", {"x"}, zero);
    out.file.close();
    CHECK(fields_refusal(folder / "flat.nc") ==
          std::string(folder / "flat.nc") +
              " has no variable on time, latitude and longitude; it holds height, x; not these: "
              "height has 2 entries on its axis 'x'");
  }
  {
    TestFile out(folder / "grids.nc");
    out.usual_axes();
    out.axis("lat", {1, 2}, "degrees_north");
    out.variable("a", {"time", "latitude", "longitude"}, zero);
    out.variable("b", {"time", "lat", "longitude"}, zero);
    out.file.close();
    CHECK_THAT(fields_refusal(folder / "grids.nc"),
               ContainsSubstring("b lies on the axis 'lat' of 2, but a on 'latitude' of 4"));
  }
  {
    TestFile out(folder / "calendar.nc");
    out.usual_axes();
    out.file.write_attribute("time", "calendar", "360_day");
    out.variable("a", {"time", "latitude", "longitude"}, zero);
    out.file.close();
    CHECK_THAT(fields_refusal(folder / "calendar.nc"), ContainsSubstring("calendar \"360_day\" is not one of"));
  }
  {
    TestFile out(folder / "depth.nc");
    out.usual_axes();
    out.axis("lev", {1, 2}, "furlongs");
    out.variable("a", {"time", "lev", "latitude", "longitude"}, zero);
    out.file.close();
    CHECK_THAT(fields_refusal(folder / "depth.nc"), ContainsSubstring("its levels are in 'furlongs'"));
  }
  {
    TestFile out(folder / "members.nc");
    out.usual_axes();
    out.axis("number", {0, 1}, "1");
    out.variable("a", {"time", "number", "latitude", "longitude"}, zero);
    out.file.close();
    CHECK_THAT(fields_refusal(folder / "members.nc"),
               ContainsSubstring("not these: a has 2 entries on its axis 'number'"));
  }
  for (const auto& [value, word] : {std::pair(std::nan(""), "NaN"), std::pair(INFINITY * 1.0, "an infinity")}) {
    TestFile out(folder / "nan.nc");
    out.axis("time", {0, 6, 12}, "hours since 2001-01-01");
    out.axis("latitude", {60, value, 0, -30}, "degrees_north");
    out.axis("longitude", {0, 120, 240}, "degrees_east");
    out.variable("a", {"time", "latitude", "longitude"}, zero);
    out.file.close();
    CHECK(fields_refusal(folder / "nan.nc") == std::string(folder / "nan.nc") + ": 'latitude' holds " + word);
  }
  {
    TestFile out(folder / "levels.nc");
    out.usual_axes();
    out.variable("a", {"time", "latitude", "longitude"}, zero);
    out.variable("b", {"level", "latitude", "longitude"}, zero);
    out.file.close();
    const FieldSeries series({.paths = {folder / "levels.nc"}, .channels = {"a"}, .choose = true});
    CHECK_THROWS_WITH(read_constants({{"c", std::string(folder / "levels.nc") + ":b"}}, series),
                      std::string(folder / "levels.nc") + ": 'b' is not one plane of latitudes and longitudes");
  }
  testing::write_text(folder / "x.grib", "GRIB and more");
  CHECK_THAT(fields_refusal(folder / "x.grib"), ContainsSubstring("is a GRIB file"));
}

TEST_CASE("variables: a folder of files is read by their first bytes, and .h5 files come first") {
  const TemporaryFolder folder;
  const auto zero = [](std::map<std::string, int>&) { return 0; };
  TestFile out(folder / "data.cdf");
  out.usual_axes();
  out.variable("sp", {"time", "latitude", "longitude"}, zero);
  out.file.close();
  testing::write_text(folder / "notes.txt", "not data");
  CHECK(find_field_files(folder.path().string()) == Names{folder / "data.cdf"});
  CHECK(has_field_files(folder.path().string()));
  CHECK(find_field_files(folder / "d*.cdf") == Names{folder / "data.cdf"});
  CHECK_THROWS_WITH(find_field_files(folder / "e*.cdf"), ContainsSubstring("e*.cdf matches no file"));
  testing::write_fields(folder / "2001.h5", {2, 1, 2, 2});
  CHECK(find_field_files(folder.path().string()) == Names{folder / "2001.h5"});
}

TEST_CASE("constants: a plane is cropped, has its moments by area, and must not change") {
  const TemporaryFolder folder;
  {
    TestFile out(folder / "data.nc");
    out.usual_axes();
    out.variable("sp", {"time", "latitude", "longitude"}, [](std::map<std::string, int>& at) { return at["time"]; });
    out.variable("z", {"longitude", "latitude"},
                 [](std::map<std::string, int>& at) { return 10 * at["latitude"] + at["longitude"]; });
    out.variable("flat", {"latitude", "longitude"}, [](std::map<std::string, int>&) { return 3; });
    out.variable("steady", {"time", "latitude", "longitude"},
                 [](std::map<std::string, int>& at) { return at["latitude"]; });
    out.file.close();
  }
  const std::string path = folder / "data.nc";
  const FieldSeries series({.paths = {path}, .channels = {"sp"}, .choose = true, .height = 2, .width = 3});
  const std::vector<ConstantField> fields = read_constants({{"height", path + ":z"}, {"a", path + ":steady"}}, series);
  REQUIRE(fields.size() == 2);
  CHECK(fields[0].name == "a");
  CHECK(fields[1].values == std::vector<float>{0, 1, 2, 10, 11, 12});
  // Rows at 60 and 30 degrees: weights 1/2 and sqrt(3)/2.
  const double north = 0.5, south = std::sqrt(3) / 2, mean = (north * 1 + south * 11) / (north + south);
  CHECK(std::abs(fields[1].mean - mean) < 1e-12);
  const auto square = [&](double value) { return (value - mean) * (value - mean); };
  const double variance =
      (north * (square(0) + square(1) + square(2)) + south * (square(10) + square(11) + square(12))) /
      (3 * (north + south));
  CHECK(std::abs(fields[1].deviation - std::sqrt(variance)) < 1e-12);

  const auto refused = [&](const std::string& place) { return read_constants({{"c", place}}, series); };
  CHECK_THROWS_WITH(refused(path + ":sp"), ContainsSubstring("'sp' changes with time, so that it is no constant"));
  CHECK_THROWS_WITH(refused(path + ":flat"), ContainsSubstring("is the same everywhere"));
  CHECK_THROWS_WITH(refused(path + ":nothing"), path + " holds no 'nothing'");
  CHECK_THROWS_WITH(refused("data.nc"), "the constant c is at 'data.nc'; expected FILE:VARIABLE");
  {
    TestFile holes(folder / "holes.nc");
    holes.axis("latitude", {60, 30, 0, -30}, "degrees_north");
    holes.axis("longitude", {0, 120, 240}, "degrees_east");
    holes.variable("z", {"latitude", "longitude"},
                   [](std::map<std::string, int>& at) { return at["latitude"] == 1 ? std::nan("") : at["longitude"]; });
    holes.file.close();
  }
  CHECK_THROWS_WITH(refused(std::string(folder / "holes.nc") + ":z"),
                    "the constant c of " + std::string(folder / "holes.nc") + " has missing points");
  {
    TestFile other(folder / "other.nc");
    other.axis("latitude", {50, 40}, "degrees_north");
    other.axis("longitude", {0, 120, 240}, "degrees_east");
    other.variable("z", {"latitude", "longitude"}, [](std::map<std::string, int>& at) { return at["latitude"]; });
    other.file.close();
  }
  CHECK_THROWS_WITH(refused(std::string(folder / "other.nc") + ":z"), ContainsSubstring("that are not those of"));
  {
    TestFile other(folder / "turned.nc");
    other.axis("latitude", {60, 30, 0, -30}, "degrees_north");
    other.axis("longitude", {120, 240, 0}, "degrees_east");
    other.variable("z", {"latitude", "longitude"}, [](std::map<std::string, int>& at) { return at["latitude"]; });
    other.file.close();
  }
  CHECK_THROWS_WITH(refused(std::string(folder / "turned.nc") + ":z"), ContainsSubstring("that are not those of"));
  {  // rows from south to north
    TestFile other(folder / "up.nc");
    other.axis("latitude", {-30, 0, 30, 60}, "degrees_north");
    other.axis("longitude", {0, 120, 240}, "degrees_east");
    other.variable("z", {"latitude", "longitude"},
                   [](std::map<std::string, int>& at) { return 10 * at["latitude"] + at["longitude"]; });
    other.file.close();
  }
  CHECK(read_constants({{"z", std::string(folder / "up.nc") + ":z"}}, series)[0].values ==
        std::vector<float>{30, 31, 32, 20, 21, 22});
  const FieldSeries narrow({.paths = {path}, .channels = {"sp"}, .choose = true, .height = 3, .width = 2});
  CHECK(read_constants({{"z", path + ":z"}}, narrow)[0].values == std::vector<float>{0, 1, 10, 11, 20, 21});
}

TEST_CASE("constants: carried ones are taken on their own grid, and a file that exists must have their bits") {
  const TemporaryFolder folder;
  const std::string path = folder / "data.nc", gone = folder / "gone.nc";
  {
    TestFile out(path);
    out.usual_axes();
    const auto row = [](std::map<std::string, int>& at) { return at["latitude"] + 1; };
    out.variable("sp", {"time", "latitude", "longitude"}, row);
    out.variable("z", {"latitude", "longitude"}, row);
    out.file.close();
  }
  const FieldSeries series({.paths = {path}, .channels = {"sp"}, .choose = true});
  CarriedConstants carried{"w", read_constants({{"z", path + ":z"}}, series), {60, 30, 0, -30}, {0, 120, 240}};
  carried.fields[0].values[4] = 7;
  const std::vector<float> values = carried.fields[0].values;
  const TextMap here{{"z", path + ":z"}}, missing{{"z", gone + ":z"}};
  CHECK(read_constants(missing, series, carried)[0].values == values);
  CHECK_THROWS_WITH(read_constants(here, series, carried),
                    "the constant z of " + path + " is not the one that w was trained with: value 4 is 2, and was 7");
  carried.fields[0].values[4] = 2;
  CHECK(read_constants(here, series, carried)[0].values == carried.fields[0].values);
  carried.fields[0].values.pop_back();
  CHECK_THROWS_WITH(read_constants(here, series, carried), "the constant z of " + path + " has 12 points, and 11 in w");
  // On another grid the carried ones mean nothing, and the file is needed.
  for (std::vector<double>* axis : {&carried.latitudes, &carried.longitudes}) {
    CarriedConstants other = carried;
    (axis == &carried.latitudes ? other.latitudes : other.longitudes)[1] += 1;
    CHECK(read_constants(here, series, other)[0].values.size() == 12);
    CHECK_THROWS_WITH(read_constants(missing, series, other), gone + " does not exist");
  }
}

TEST_CASE("data info: variables that are no channel, and preliminary data, are told") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.nc";
  const auto told = [&](const Names& experiments) {
    TestFile out(path);
    out.usual_axes();
    out.axis("depth", {0.1, 0.5}, "m");
    const auto one = [](std::map<std::string, int>&) { return 1; };
    out.variable("t2m", {"time", "latitude", "longitude"}, one);
    out.variable("stl", {"time", "depth", "latitude", "longitude"}, one);
    out.variable("orography", {"latitude", "longitude"}, one);
    if (!experiments.empty()) out.file.write("expver", experiments);
    out.file.close();
    return describe_data(path);
  };
  const std::string left_out =
      "  no channel: orography does not change with time\n  no channel: stl has 2 entries on its axis 'depth'\n";
  CHECK_THAT(told({"0001", "0005", "0005"}),
             ContainsSubstring("  time step: 6 hours\n  expver: 2 of 3 steps are preliminary (expver 5), the first of "
                               "2001-01-01T06:00\n" +
                               left_out));
  CHECK_THAT(told({"0001", "0001", "0001"}), ContainsSubstring("  expver: no step is preliminary\n" + left_out));
  const std::string untold = told({});
  CHECK_THAT(untold, ContainsSubstring(left_out));
  CHECK(untold.find("expver") == std::string::npos);
}

TEST_CASE("variables: forecasts that are no sequence, and levels that are not told, are left out with the reason") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.nc";
  TestFile out(path);
  out.usual_axes();
  out.axis("step", {6, 12}, "hours");
  out.axis("lead_time", {1, 2}, "moons");
  out.file.write("plev", Names{"low", "high"});
  out.extents["plev"] = 2;
  const auto one = [](std::map<std::string, int>&) { return 1; };
  out.variable("sp", {"time", "latitude", "longitude"}, one);
  out.variable("t2m", {"time", "step", "latitude", "longitude"}, one);
  out.variable("u10", {"lead_time", "latitude", "longitude"}, one);
  out.variable("v", {"time", "plev", "latitude", "longitude"}, one);
  out.file.close();
  const FieldSeries series({.paths = {path}});
  CHECK(series.channel_names() == Names{"sp"});
  CHECK(series.file(0).left_out() ==
        Names{"t2m has 2 entries on its axis 'step' and 3 on 'time': only one start, or one lead, is a sequence of "
              "steps",
              "u10 has 2 entries on its axis 'lead_time', whose times it does not tell",
              "v has an axis 'plev' whose levels the file does not tell"});
}

TEST_CASE("variables: an axis of another length than its coordinate is refused with both lengths") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.nc";
  for (const auto& [name, values] :
       {std::pair("time", 3), std::pair("level", 2), std::pair("latitude", 4), std::pair("longitude", 3)}) {
    TestFile out(path);
    out.usual_axes();
    ++out.extents[name];
    out.variable("t", {"time", "level", "latitude", "longitude"}, [](std::map<std::string, int>&) { return 1; });
    out.file.close();
    CHECK(fields_refusal(path) ==
          concat(path, ": '", name, "' has ", values, " values, but t has ", values + 1, " on this axis"));
  }
}

TEST_CASE("variables: a forecast of one start is a sequence in time, whatever the units of starts and leads") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.nc";
  const auto times_of = [&](const std::string& of_start, double start, const std::string& of_lead,
                            const Numbers& leads) {
    TestFile out(path);
    out.axis("time", {start}, of_start);
    out.axis("step", leads, of_lead);
    out.axis("latitude", {60, 30}, "degrees_north");
    out.axis("longitude", {0, 120}, "degrees_east");
    out.variable("t2m", {"time", "step", "latitude", "longitude"},
                 [](std::map<std::string, int>& at) { return 10 * at["step"] + at["longitude"]; });
    out.file.close();
    const FieldSeries series({.paths = {path}});
    CHECK(series.steps() == std::ssize(leads));
    CHECK(step_of(series, series.steps() - 1)[1] == static_cast<float>(10 * (series.steps() - 1) + 1));
    Names times;
    for (std::int64_t step = 0; step < series.steps(); ++step) times.push_back(series.time_of(step).iso());
    return times;
  };
  CHECK(times_of("hours since 2001-01-01", 24, "hours", {6, 12}) == Names{"2001-01-02T06:00", "2001-01-02T12:00"});
  CHECK(times_of("days since 2001-01-01", 1, "minutes", {90, 180, 270}) ==
        Names{"2001-01-02T01:30", "2001-01-02T03:00", "2001-01-02T04:30"});
  CHECK(times_of("hours since 2001-01-01", 0, "days", {1, 2}) == Names{"2001-01-02T00:00", "2001-01-03T00:00"});
  CHECK(times_of("seconds since 2001-01-01", 3600, "s", {0, 1800}) == Names{"2001-01-01T01:00", "2001-01-01T01:30"});
  CHECK(times_of("hours since 2001-01-01", 0, "ns", {3.6e12, 7.2e12}) == Names{"2001-01-01T01:00", "2001-01-01T02:00"});
}

TEST_CASE("variables: of planes by two axes both are told, and one whose values nobody tells is refused") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.nc";
  const auto one = [](std::map<std::string, int>&) { return 1; };
  {
    TestFile out(path);
    out.usual_axes();
    out.axis("prediction_timedelta", {6, 12}, "hours");
    out.variable("t2m", {"time", "prediction_timedelta", "latitude", "longitude"}, one);
    out.file.close();
  }
  const OpenedPlanes planes = open_variable_planes(open_stored_arrays(path), FieldPlan::forecasts, nullptr);
  CHECK(planes.outer.name == "time");
  CHECK(planes.outer.values.units == "hours since 2001-01-01");
  CHECK(planes.outer.values.values == Numbers{0, 6, 12});
  CHECK_FALSE(planes.outer.values.single_precision);
  CHECK(planes.inner.name == "prediction_timedelta");
  CHECK(planes.inner.values.values == Numbers{6, 12});
  {
    TestFile out(path);
    out.usual_axes();
    out.file.write("prediction_timedelta", Names{"soon", "late"});
    out.extents["prediction_timedelta"] = 2;
    out.variable("t2m", {"time", "prediction_timedelta", "latitude", "longitude"}, one);
    out.file.close();
  }
  CHECK_THROWS_WITH(open_variable_planes(open_stored_arrays(path), FieldPlan::forecasts, nullptr),
                    path + ": the axis 'prediction_timedelta' of t2m has no coordinate that tells its values");
  CHECK_THROWS_WITH(open_variable_planes(open_stored_arrays(path), FieldPlan::climatology, nullptr),
                    ContainsSubstring(path + " has no variable on days (dayofyear, calendar_day), latitude and "
                                             "longitude; it holds "));
}
