// Converted fields are those of their sources, bit for bit; what does not fit is refused before anything is written.
#include "data/fields/convert.h"

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "data/fields/chosen_planes.h"
#include "data/fields/computed_planes.h"
#include "data/fields/field_series.h"
#include "engine/files/file_lock.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kHoursIn2001 = 365 * 24, kHoursIn2002 = 365 * 24;
const double kHoursTo2001 = 271752;  // from 1970

// A file of 3 x 4 points. hours: of its steps, since 2001-01-01.
struct Source {
  std::vector<std::string> names = {"u10", "t2m", "sp"};
  std::vector<double> hours = {};
  float tag = 0;
  std::vector<std::string> units = {"m s**-1", "K", "Pa"};
  std::vector<std::pair<std::size_t, float>> holes = {};  // places and values
};

void write_source(const fs::path& path, const Source& source) {
  const testing::FieldsShape shape{std::ssize(source.hours), std::ssize(source.names), 3, 4};
  std::vector<float> values = testing::field_values(shape, source.tag);
  for (const auto& [place, value] : source.holes) values[place] = value;
  auto file = hdf5::File::create(path.string());
  file.write("fields", shape, std::span<const float>(values));
  file.write("channel", source.names);
  file.write("units", source.units);
  file.write("lat", std::array{shape[2]}, std::span<const double>(std::vector<double>{45.5, 10, -45.5}));
  file.write("lon", std::array{shape[3]}, std::span<const double>(std::vector<double>{0, 90, 180, 270}));
  file.write("time", std::array{shape[0]}, std::span<const double>(source.hours));
  file.write_attribute("time", "units", "hours since 2001-01-01 00:00:00");
  file.close();
}

std::vector<double> hours_from(double first, int steps) {
  std::vector<double> hours;
  for (int step = 0; step < steps; ++step) hours.push_back(first + 6.0 * step);
  return hours;
}

std::vector<std::string> convert(const ConvertOptions& options) {
  std::vector<std::string> told;
  convert_fields(options, [&](const std::string& line) { told.push_back(line); });
  return told;
}

std::string convert_refusal(const ConvertOptions& options) {
  try {
    convert(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::vector<float> step_of(const FieldSeries& series, std::int64_t step) {
  std::vector<float> values(static_cast<std::size_t>(series.values()));
  series.read_step(step, values.data());
  return values;
}

// Names below a folder, sorted, hidden ones too.
std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) names.push_back(fs::relative(entry.path(), folder).string());
  std::ranges::sort(names);
  return names;
}

// A NetCDF-3 file of one plane z [lat, lon], with a unit, on the points of write_source.
void write_height(const fs::path& path, float first) {
  std::string bytes = "CDF\x01";
  const auto number = [&](std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  };
  const auto text = [&](const std::string& value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes += value;
    bytes.resize((bytes.size() + 3) / 4 * 4);
  };
  const auto attribute = [&](const std::string& name, const std::string& value) {
    number(0xc), number(1), text(name), number(2), text(value);
  };
  constexpr std::uint32_t kFloat = 5, kHeader = 264;
  number(0), number(0xa), number(2), text("lat"), number(3), text("lon"), number(4), number(0), number(0);
  number(0xb), number(3);
  text("lat"), number(1), number(0), attribute("units", "degrees_north"), number(kFloat), number(12), number(kHeader);
  text("lon"), number(1), number(1), attribute("units", "degrees_east"), number(kFloat), number(16);
  number(kHeader + 12);
  text("z"), number(2), number(0), number(1), attribute("units", "m2 s-2"), number(kFloat), number(48);
  number(kHeader + 28);
  REQUIRE(bytes.size() <= kHeader);
  bytes.resize(kHeader);
  for (float value : {45.5F, 10.0F, -45.5F, 0.0F, 90.0F, 180.0F, 270.0F}) number(std::bit_cast<std::uint32_t>(value));
  for (int i = 0; i < 12; ++i) number(std::bit_cast<std::uint32_t>(first + static_cast<float>(i)));
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("convert: values, labels and times are those of the sources, by year") {
  const TemporaryFolder folder;
  // Files are no years: the second begins in 2001 and ends in 2002; 2003 has no step.
  write_source(folder / "a.h5", {.hours = hours_from(kHoursIn2001 - 48, 4), .tag = 0.1F});
  write_source(folder / "b.h5", {.hours = hours_from(kHoursIn2001 - 24, 9), .tag = 5000});
  write_source(folder / "c.h5", {.hours = hours_from(kHoursIn2001 + kHoursIn2002 + 365 * 24, 3), .tag = 9000});
  const ConvertOptions options{.sources = {folder / "a.h5", folder / "c.h5", folder / "b.h5"},
                               .out = folder / "out",
                               .channels = {"sp", "u10"},
                               .threads = 3};
  const std::vector<std::string> told = convert(options);
  CHECK(told.front() == "to write: 1.54 kB, 16 steps of 2 channels on 3 x 4 in 3 files");
  CHECK(told.size() == 4);
  CHECK(files_in(folder / "out") == std::vector<std::string>{"2001.h5", "2002.h5", "2004.h5"});

  const FieldSeries sources({.paths = options.sources, .channels = options.channels, .choose = true});
  const FieldSeries made({.paths = {options.out}});
  CHECK(made.channel_names() == options.channels);
  CHECK(made.labels().units == std::vector<std::string>{"Pa", "m s**-1"});
  CHECK(made.latitudes() == sources.latitudes());
  CHECK(made.longitudes() == sources.longitudes());
  CHECK(made.file(0).steps() == 8);
  CHECK(made.file(1).steps() == 5);
  REQUIRE(made.steps() == sources.steps());
  for (std::int64_t step = 0; step < made.steps(); ++step) {
    CHECK(made.hours_since_1970(step) == sources.hours_since_1970(step));
    CHECK(step_of(made, step) == step_of(sources, step));
  }
  CHECK(made.hours_since_1970(0) == kHoursTo2001 + kHoursIn2001 - 48);
}

TEST_CASE("convert: dates split a year between two folders") {
  const TemporaryFolder folder;
  write_source(folder / "a.h5", {.hours = hours_from(0, 12)});
  ConvertOptions options{.sources = {folder / "a.h5"}, .out = folder / "out", .channels = {"t2m"}, .threads = 1};
  options.split = {"2001-01-02", "2001-01-03T06"};
  convert(options);
  CHECK(files_in(folder / "out") == std::vector<std::string>{"test/2001.h5", "train/2001.h5", "valid/2001.h5"});
  const std::string out = folder / "out";
  CHECK(FieldSeries({.paths = {out + "/train"}}).steps() == 4);
  const FieldSeries valid({.paths = {out + "/valid"}});
  CHECK(valid.steps() == 5);
  CHECK(valid.time_of(0).iso() == "2001-01-02T00:00");
  CHECK(FieldSeries({.paths = {out + "/test"}}).time_of(0).iso() == "2001-01-03T06:00");

  options.split = {"2001-01-04"};
  CHECK_THAT(convert_refusal(options), ContainsSubstring("--split leaves no step for " + out +
                                                         "/valid: the sources are from "
                                                         "2001-01-01T00:00 to 2001-01-03T18:00"));
  options.split = {"2001-01-03", "2001-01-02"};
  CHECK(convert_refusal(options) == "--split 2001-01-03 2001-01-02: the dates do not ascend");
  options.split = {"2001-01-01T06", "2001-01-02", "2001-01-03"};
  CHECK(convert_refusal(options) == "--split has 3 dates; two are the most");
}

TEST_CASE("convert: times that are no whole hours are kept") {
  const TemporaryFolder folder;
  write_source(folder / "a.h5", {.hours = {0, 0.25, 0.5}});
  convert({.sources = {folder / "a.h5"}, .out = folder / "out", .channels = {"t2m"}});
  const FieldSeries made({.paths = {folder / "out"}});
  CHECK(made.hours_since_1970(1) == kHoursTo2001 + 0.25);
  CHECK(made.labels().step_hours == 0.25);
}

TEST_CASE("convert: computed planes and constants lie among the fields") {
  const TemporaryFolder folder;
  write_source(folder / "a.h5", {.hours = hours_from(17 * 24, 3)});
  write_height(folder / "z.nc", 100);
  const ConvertOptions options{
      .sources = {folder / "a.h5"},
      .out = folder / "out",
      .channels = {"toa_radiation", "sp", "z=" + (folder / "z.nc:z").string(), "u10", "t2m", "cos_zenith"}};
  convert(options);
  const FieldSeries made({.paths = {options.out}}), source({.paths = {folder / "a.h5"}});
  CHECK(made.channel_names() == std::vector<std::string>{"toa_radiation", "sp", "z", "u10", "t2m", "cos_zenith"});
  CHECK(made.labels().units == std::vector<std::string>{"J m**-2", "Pa", "m2 s-2", "m s**-1", "K", "1"});
  const ComputedPlanes planes({"toa_radiation", "cos_zenith"}, {source.latitudes(), source.longitudes()}, 6,
                              RadiationUnit::joule);
  float sunlight = 0;
  for (std::int64_t step = 0; step < 3; ++step) {
    const std::vector<float> got = step_of(made, step), fields = step_of(source, step);
    std::vector<float> sun(24);
    planes.write(source.hours_since_1970(step).value(), 0, 3, sun.data());
    for (std::size_t p = 0; p < 12; ++p) {
      CHECK(got[p] == sun[p]);
      CHECK(got[12 + p] == fields[24 + p]);
      CHECK(got[24 + p] == 100.0F + static_cast<float>(p));
      CHECK(got[36 + p] == fields[p]);
      CHECK(got[48 + p] == fields[12 + p]);
      CHECK(got[60 + p] == sun[12 + p]);
      sunlight += sun[p];
    }
  }
  CHECK(sunlight > 0);
}

TEST_CASE("convert: holes are refused by file, step and channel, or written as NaN") {
  const TemporaryFolder folder;
  const std::string source = folder / "a.h5";
  // Step 1, t2m and sp.
  write_source(source, {.hours = hours_from(0, 3), .holes = {{36 + 12 + 5, kNaN}, {36 + 24, 1e20F}}});
  ConvertOptions options{.sources = {source}, .out = folder / "out", .channels = {"t2m", "sp"}, .threads = 1};
  CHECK(convert_refusal(options) == source + ": step 1, channel t2m holds NaN");
  CHECK(files_in(folder / "out") == std::vector<std::string>{".2001.h5.done", ".2001.h5.partial"});
  options.allow_missing = true;
  CHECK(convert(options).size() == 2);
  CHECK(files_in(folder / "out") == std::vector<std::string>{"2001.h5"});
  std::vector<float> got(24);
  FieldSeries({.paths = {options.out}, .missing = options.channels}).read_step(1, got.data());
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::isnan(got[i]) == (i == 5 || i == 12));
  CHECK(got[6] == testing::field_value(0, 1, 1, 1, 2));
  CHECK(convert(options).front() == "nothing to write; kept: 1 file that are there already");

  write_source(source, {.hours = hours_from(0, 3), .holes = {{36 + 5, std::numeric_limits<float>::infinity()}}});
  options.out = folder / "other";
  options.channels = {"u10"};
  CHECK(convert_refusal(options) == source + ": step 1, channel u10 holds an infinity");
}

TEST_CASE("convert: a file that is there is kept only if it is the same") {
  const TemporaryFolder folder;
  write_source(folder / "a.h5", {.hours = hours_from(0, 5)});
  const ConvertOptions options{.sources = {folder / "a.h5"}, .out = folder / "out", .channels = {"t2m", "sp"}};
  convert(options);
  const std::string path = folder / "out/2001.h5", before = read_file(path);
  const auto other = [&](const char* what) {
    CHECK(convert_refusal(options) == path + " is there already, and " + what +
                                          " are not those that would be written; choose another --out, or remove it");
    CHECK((read_file(path) == before));
  };
  SECTION("what is left of the work is removed") {
    testing::write_text(folder / "out/.2001.h5.done", "{}");
    CHECK(convert(options) == std::vector<std::string>{"nothing to write; kept: 1 file that are there already"});
    CHECK(files_in(folder / "out") == std::vector<std::string>{"2001.h5"});
    CHECK((read_file(path) == before));
  }
  SECTION("times") {
    write_source(folder / "a.h5", {.hours = hours_from(6, 5)});
    other("its times");
  }
  SECTION("values") {
    write_source(folder / "a.h5", {.hours = hours_from(0, 5), .holes = {{36 * 4 + 13, 0.5F}}});
    other("its values at step 4");
  }
  SECTION("units") {
    write_source(folder / "a.h5", {.hours = hours_from(0, 5), .units = {"m/s", "degC", "Pa"}});
    other("its channels or units");
  }
  SECTION("values of a step in the middle") {
    write_source(folder / "a.h5", {.hours = hours_from(0, 5), .holes = {{36 * 2 + 35, 0.5F}}});
    other("its values at step 2");
  }
  SECTION("steps") {
    write_source(folder / "a.h5", {.hours = hours_from(0, 4)});
    other("its steps, channels or points");
  }
  SECTION("latitudes, or longitudes") {
    for (const bool is_latitude : {true, false}) {
      auto file = hdf5::File::create((folder / "a.h5").string());
      file.write("fields", testing::FieldsShape{5, 2, 3, 4}, std::span<const float>(std::vector<float>(120)));
      file.write("channel", std::vector<std::string>{"t2m", "sp"});
      file.write("units", std::vector<std::string>{"K", "Pa"});
      file.write("lat", std::array<std::int64_t, 1>{3},
                 std::span<const double>(std::vector<double>{45.5, is_latitude ? 11.0 : 10.0, -45.5}));
      file.write("lon", std::array<std::int64_t, 1>{4},
                 std::span<const double>(std::vector<double>{0, 90, is_latitude ? 180.0 : 181.0, 270}));
      file.write("time", std::array<std::int64_t, 1>{5}, std::span<const double>(hours_from(0, 5)));
      file.write_attribute("time", "units", "hours since 2001-01-01 00:00:00");
      file.close();
      other("its points");
    }
  }
  SECTION("channels") {
    CHECK_THAT(convert_refusal({.sources = options.sources, .out = options.out, .channels = {"sp", "t2m"}}),
               ContainsSubstring("is there already, and its channels or units are not"));
  }
}

TEST_CASE("convert: unfinished work is gone on with by the same arguments and sources alone") {
  const TemporaryFolder folder;
  const std::string source = folder / "a.h5";
  write_source(source, {.hours = hours_from(0, 40)});
  ConvertOptions options{.sources = {source}, .out = folder / "whole", .channels = {"t2m", "sp"}, .threads = 2};
  convert(options);
  // A NaN stops the work at step 30.
  write_source(source, {.hours = hours_from(0, 40), .holes = {{36 * 30 + 13, kNaN}}});
  options.out = folder / "out";
  CHECK_THAT(convert_refusal(options), ContainsSubstring("step 30, channel t2m holds NaN"));
  const std::string journal = folder / "out/.2001.h5.done";
  SECTION("other channels") {
    options.channels = {"sp", "t2m"};
    CHECK(convert_refusal(options) ==
          journal + ": its file was begun with other channels; go on with the same ones, or remove it to begin anew");
  }
  SECTION("a source that has changed") {
    write_source(source, {.hours = hours_from(0, 40)});
    CHECK_THAT(convert_refusal(options), ContainsSubstring(journal + ": its file was begun with other sources; "));
    fs::remove(journal);
    convert(options);
    CHECK((read_file(folder / "out/2001.h5") == read_file(folder / "whole/2001.h5")));
  }
  SECTION("the same") {
    options.allow_missing = true;
    options.threads = 1;
    CHECK_THAT(convert(options).back(), ContainsSubstring("40 steps, 30 of them from the run before"));
    const std::string made = read_file(folder / "out/2001.h5");
    options.out = folder / "anew";
    convert(options);
    CHECK((made == read_file(folder / "anew/2001.h5")));
  }
}

TEST_CASE("convert: a full disk is an error, and the work goes on afterwards") {
  const TemporaryFolder folder;
  write_source(folder / "a.h5", {.hours = hours_from(0, 40)});
  ConvertOptions options{.sources = {folder / "a.h5"}, .out = folder / "whole", .channels = {"t2m", "sp"}};
  convert(options);
  options.out = folder / "out";
  {
    const testing::FileSizeLimit limit(3000);
    CHECK_THAT(convert_refusal(options), ContainsSubstring("2001.h5"));
  }
  convert(options);
  CHECK(files_in(folder / "out") == std::vector<std::string>{"2001.h5"});
  CHECK((read_file(folder / "out/2001.h5") == read_file(folder / "whole/2001.h5")));
}

TEST_CASE("convert: what does not fit is refused") {
  const TemporaryFolder folder;
  const std::string source = folder / "data/2001.h5";
  fs::create_directories(folder / "data");
  write_source(source, {.hours = hours_from(0, 5)});
  const auto with = [&](const std::vector<std::string>& channels, const std::string& out = "out") {
    return ConvertOptions{.sources = {folder / "data"}, .out = folder / out, .channels = channels};
  };
  CHECK(convert_refusal(with({"t2m", "t2m"})) == "the channel t2m is named twice");
  CHECK(convert_refusal(with({"z="})) == "the channel 'z=' is no name, and no constant, NAME=FILE:VARIABLE");
  CHECK_THAT(convert_refusal(with({"cos_zenith"})), ContainsSubstring("no channel is one of the files"));
  CHECK_THAT(convert_refusal(with({"t2n"})), ContainsSubstring(" has no channel t2n; did you mean t2m?"));
  CHECK(convert_refusal(with({"t2m"}, "data")) == source + " is a source, and would be written; choose another --out");
  CHECK_FALSE(fs::exists(folder / "out"));
  fs::rename(source, folder / "data/a.h5");
  CHECK_THAT(convert_refusal(with({"t2m"}, "data")), ContainsSubstring("/data is a folder of sources"));
  fs::create_directories(folder / "out");
  {
    const FileLock lock = FileLock::of_folder(folder / "out");
    CHECK_THAT(convert_refusal(with({"t2m"})), ContainsSubstring("/out: another process writes to this folder"));
  }
  testing::write_labelled_fields(folder / "data/a.h5", {5, 1, 3, 4}, {.names = {"t2m"}});
  CHECK(convert_refusal(with({"t2m"})) ==
        (folder / "data/a.h5").string() +
            " has no 'time', so that its steps belong to no year: data convert needs times");
  CHECK(files_in(folder / "out").empty());
}

TEST_CASE("convert: what is joined, and what is left out of it, is told before it is written") {
  const TemporaryFolder folder;
  write_source(folder / "t.h5", {.names = {"t2m"}, .hours = hours_from(0, 3), .units = {"K"}});
  write_source(folder / "u.h5", {.names = {"u10"}, .hours = hours_from(6, 2), .units = {"m/s"}});
  const ConvertOptions options{
      .sources = {folder / "t.h5", folder / "u.h5"}, .out = folder / "out", .channels = {"u10", "t2m"}};
  const std::vector<std::string> told = convert(options);
  REQUIRE(told.size() == 2);
  CHECK(told[0] ==
        "to write: 192 bytes, 2 steps of 2 channels on 3 x 4 in 1 file\n"
        "left out: 1 step that not all files have, the first at 2001-01-01T00:00");
  CHECK_THAT(told[1], ContainsSubstring((folder / "out/2001.h5").string() + ": 2 steps, in "));
  const FieldSeries made({.paths = {options.out}});
  CHECK(step_of(made, 0)[0] == testing::field_value(0, 0, 0, 0, 0));   // u10 at 06:00 is its first
  CHECK(step_of(made, 0)[12] == testing::field_value(0, 1, 0, 0, 0));  // t2m its second
  CHECK(convert_refusal({.sources = options.sources, .channels = {"t2m"}}) == "data convert needs a folder: --out");
  CHECK(convert_refusal({.sources = options.sources, .out = options.out}) == "data convert needs channels: --channels");
}

TEST_CASE("convert: the files of constants are sources as those of fields are, each with its own values and unit") {
  const TemporaryFolder folder;
  write_source(folder / "a.h5", {.hours = hours_from(0, 8)});
  write_height(folder / "first.nc", 100);
  write_height(folder / "second.nc", -7);
  const std::string first = folder / "first.nc", second = folder / "second.nc";
  ConvertOptions options{.sources = {folder / "a.h5"},
                         .out = folder / "out",
                         .channels = {"b=" + second + ":z", "t2m", "a=" + first + ":z"},
                         .threads = 1};
  convert(options);
  const FieldSeries made({.paths = {options.out}});
  CHECK(made.labels().units == std::vector<std::string>{"m2 s-2", "K", "m2 s-2"});
  CHECK(step_of(made, 7)[1] == -6);
  CHECK(step_of(made, 7)[24 + 1] == 101);

  // A hole stops the work; then another file of a constant is another source.
  options.out = folder / "other";
  write_source(folder / "a.h5", {.hours = hours_from(0, 8), .holes = {{36 * 7 + 12, kNaN}}});
  CHECK_THAT(convert_refusal(options), ContainsSubstring("step 7, channel t2m holds NaN"));
  write_height(folder / "first.nc", 200);
  CHECK_THAT(convert_refusal(options), ContainsSubstring(": its file was begun with other sources; "));

  // Neither constant is overwritten.
  for (const std::string& constant : {first, second}) {
    INFO(constant);
    fs::create_directories(folder / "place");
    fs::rename(constant, folder / "place/2001.h5");
    ConvertOptions over = options;
    over.out = folder / "place";
    for (std::string& channel : over.channels)
      if (const std::size_t at = channel.find(constant); at != std::string::npos)
        channel.replace(at, constant.size(), folder / "place/2001.h5");
    CHECK(convert_refusal(over) ==
          (folder / "place/2001.h5").string() + " is a source, and would be written; choose another --out");
    fs::rename(folder / "place/2001.h5", constant);
  }
}

TEST_CASE("convert: sizes are in the largest unit of which there is one, and one of a thing is no plural") {
  const TemporaryFolder folder;
  const std::string source = folder / "a.h5";
  const auto plan = [&](const testing::FieldsShape& shape) {
    testing::write_labelled_fields(source, shape,
                                   {.names = {"t2m"}, .hours = hours_from(0, static_cast<int>(shape[0]))},
                                   std::vector<float>(static_cast<std::size_t>(shape[0] * shape[2] * shape[3])));
    fs::remove_all(folder / "out");
    return convert({.sources = {source}, .out = folder / "out", .channels = {"t2m"}}).front();
  };
  CHECK(plan({1, 1, 1, 1}) == "to write: 4 bytes, 1 step of 1 channel on 1 x 1 in 1 file");
  CHECK(plan({3, 1, 3, 83}) == "to write: 2.99 kB, 3 steps of 1 channel on 3 x 83 in 1 file");
  CHECK(plan({1, 1, 3, 83}) == "to write: 996 bytes, 1 step of 1 channel on 3 x 83 in 1 file");
  CHECK(plan({2, 1, 5, 25}) == "to write: 1 kB, 2 steps of 1 channel on 5 x 25 in 1 file");
  CHECK(plan({1, 1, 500, 500}) == "to write: 1 MB, 1 step of 1 channel on 500 x 500 in 1 file");
}

TEST_CASE("convert: a disk without room for all files is met before any is written") {
  const TemporaryFolder folder;
  const std::string source = folder / "a.h5";
  const auto free = static_cast<std::int64_t>(fs::space(folder.path()).available);
  // Twice the disk: others may free some of it meanwhile.
  const std::int64_t side = 4096, steps = 2 * free / (side * side * 4) + 1;
  auto file = hdf5::File::create(source);
  file.reserve("fields", std::array<std::int64_t, 4>{steps, 1, side, side}, hdf5::Room::when_written);
  file.write("channel", std::vector<std::string>{"t2m"});
  std::vector<double> hours(static_cast<std::size_t>(steps));
  std::iota(hours.begin(), hours.end(), 0);
  file.write("time", std::array<std::int64_t, 1>{steps}, std::span<const double>(hours));
  file.write_attribute("time", "units", "hours since 2001-01-01 00:00:00");
  file.close();
  const std::string out = folder / "out";
  const testing::FileSizeLimit limit(1 << 20);  // should it write, it shall not fill the disk
  const std::string refusal = convert_refusal({.sources = {source}, .out = out, .channels = {"t2m"}});
  CHECK_THAT(refusal, ContainsSubstring(out + " needs ") && ContainsSubstring(", and its disk has "));
  CHECK(files_in(out).empty());
}

TEST_CASE("convert: steps reach the disk after so many bytes, or a sixteenth of a file, and at least one a thread") {
  const TemporaryFolder folder;
  const std::string source = folder / "a.h5";
  write_source(source, {.hours = hours_from(0, 64), .holes = {{36 * 47 + 12, kNaN}}});
  const auto kept = [&](std::int64_t flush_bytes, int threads) {
    ConvertOptions options{.sources = {source}, .out = folder / "out", .channels = {"t2m"}, .threads = threads};
    options.flush_bytes = flush_bytes;
    fs::remove_all(options.out);
    CHECK_THAT(convert_refusal(options), ContainsSubstring("step 47, channel t2m holds NaN"));
    options.allow_missing = true;
    return convert(options).back();
  };
  constexpr std::int64_t kStep = 12 * 4;  // bytes
  const auto had = [](int steps) {
    return ContainsSubstring(concat("64 steps, ", steps, " of them from the run before, in "));
  };
  CHECK_THAT(kept(0, 1), had(47));
  CHECK_THAT(kept(2 * kStep, 1), had(46));
  CHECK_THAT(kept(3 * kStep, 1), had(45));
  CHECK_THAT(kept(1000 * kStep, 1), had(44));  // four are a sixteenth
  CHECK_THAT(kept(0, 5), had(45));
}

TEST_CASE(
    "convert: unfinished work of other steps, of other places of constants, or of another track is not gone on with") {
  const TemporaryFolder folder;
  write_source(folder / "t.h5", {.names = {"t2m"}, .hours = hours_from(0, 40), .units = {"K"}});
  const auto write_wind = [&](float tag) {
    write_source(
        folder / "u.h5",
        {.names = {"u10"}, .hours = hours_from(0, 40), .tag = tag, .units = {"m/s"}, .holes = {{12 * 10, kNaN}}});
  };
  write_wind(0);
  write_height(folder / "a.nc", 1);
  write_height(folder / "b.nc", 2);
  const std::string a = (folder / "a.nc").string() + ":z", b = (folder / "b.nc").string() + ":z";
  ConvertOptions options{.sources = {folder / "t.h5", folder / "u.h5"},
                         .out = folder / "out",
                         .channels = {"t2m", "u10", "a=" + a, "b=" + b},
                         .split = {"2001-01-06"},
                         .threads = 1};
  const auto stopped = [&] { return ContainsSubstring("step 10, channel u10 holds NaN"); };
  CHECK_THAT(convert_refusal(options), stopped());
  CHECK_THAT(convert_refusal(options), stopped());
  const std::string journal = (folder / "out/train/.2001.h5.done").string();
  const auto begun_with_other = [&](const std::string& what) {
    return journal + ": its file was begun with other " + what +
           "; go on with the same ones, or remove it to begin anew";
  };
  options.split = {"2001-01-07"};  // more steps of the same sources
  CHECK(convert_refusal(options) == begun_with_other("steps"));
  options.split = {"2001-01-06"};
  options.channels = {"t2m", "u10", "a=" + b, "b=" + a};
  CHECK(convert_refusal(options) == begun_with_other("channels"));
  options.channels = {"t2m", "u10", "a=" + a, "b=" + b};
  CHECK_THAT(convert_refusal(options), stopped());
  write_wind(1);
  CHECK(convert_refusal(options) == begun_with_other("sources"));
}
