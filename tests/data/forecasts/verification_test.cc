// What forecasts are scored against: channels by any of their names, units, a part of the grid, and times.
#include "data/forecasts/verification.h"

#include <cmath>
#include <string>
#include <vector>

#include "data/forecasts/climatology.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"
#include "tests/harness/variable_file.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

// Six-hourly fields of t2m and u850 at three steps of 2001 on 4 x 2 points; a point of t2m is missing at the last one.
std::string truth_in(const testing::TemporaryFolder& folder) {
  const std::string path = folder / "truth.nc";
  testing::VariableFile out(path);
  out.axis("time", {0, 6, 12}, "hours since 2001-01-01");
  out.axis("latitude", {45, 15, -15, -45}, "degrees_north");
  out.axis("longitude", {0, 180}, "degrees_east");
  for (const int channel : {0, 1})
    out.variable(channel == 0 ? "t2m" : "u850", {"time", "latitude", "longitude"}, [&](auto& at) {
      const bool is_hole = channel == 0 && at["time"] == 2 && at["latitude"] == 2 && at["longitude"] == 0;
      return is_hole ? std::nan("") : 1000.0 * channel + 100 * at["time"] + 10 * at["latitude"] + at["longitude"];
    });
  out.file.write_attribute("t2m", "units", "K");
  out.file.close();
  return path;
}

constexpr double kStart = 271752;  // hours since 1970 of 2001-01-01T00

// Rows 15 and -15 degrees, southwards.
const FieldGrid kBand{.height = 2, .width = 2, .latitudes = {15, -15}, .longitudes = {0, 180}, .source = "f.nc"};

}  // namespace

TEST_CASE("verification: the truth in the order of the forecast's channels, on its grid") {
  const testing::TemporaryFolder folder;
  TruthFields truth({truth_in(folder)});
  CHECK(truth.has("2m_temperature"));
  CHECK(truth.has("u_component_of_wind_850"));
  CHECK_FALSE(truth.has("u500"));
  truth.choose({.names = {"u_850", "2t"}, .units = {"m/s", "kelvin"}, .source = "f.nc"}, kBand);
  CHECK(truth.points() == 4);
  CHECK(truth.read(1) == std::vector<float>{1110, 1111, 1120, 1121, 110, 111, 120, 121});
  const std::vector<float> last = truth.read(2);
  CHECK(std::isnan(last[6]));
  CHECK(last[7] == 221);
  CHECK(truth.step_at(kStart + 6) == 1);
  CHECK(truth.step_at(kStart + 6.016) == 1);  // within a minute
  CHECK(truth.step_at(kStart + 5.984) == 1);
  CHECK_FALSE(truth.step_at(kStart + 6.03));
  CHECK_FALSE(truth.step_at(kStart + 18));
  CHECK(truth.hours(2) == kStart + 12);
  truth.choose({.names = {"t2m"}, .units = {""}, .source = "f.nc"}, kBand);  // chosen anew
  CHECK(truth.read(0) == std::vector<float>{10, 11, 20, 21});
}

TEST_CASE("verification: a channel that is not there, another unit, and data without dates are refused with both") {
  const testing::TemporaryFolder folder;
  const std::string path = truth_in(folder), plain = folder / "storm.h5";
  TruthFields truth({path});
  CHECK_THROWS_WITH(truth.choose({.names = {"t2m", "sp"}, .units = {"K", "Pa"}, .source = "f.nc"}, kBand),
                    path + " has no channel sp, which f.nc has; it has t2m, u850; --channels chooses what is scored");
  CHECK_THROWS_WITH(truth.choose({.names = {"u850", "2t"}, .units = {"", "degC"}, .source = "f.nc"}, kBand),
                    "f.nc: channel 2t is in degC, but in K in " + path);
  testing::write_fields(plain, {2, 1, 4, 2});
  TruthFields undated({plain}, {"t2m"});
  CHECK(undated.has("2t"));
  CHECK_THROWS_WITH(undated.choose({.names = {"t2m"}, .units = {""}, .source = "f.nc"}, kBand),
                    plain +
                        " has no dates: forecasts are compared with the truth of the same time, 'time' in units "
                        "like \"hours since 1970-01-01\", or a year as the file's name");
  CHECK_THROWS_WITH(TruthFields({path}, {"u850", "t2m"}), ContainsSubstring("--truth-channels"));
}

TEST_CASE("verification: a climatology holds the time of its means, both ends included") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "climatology.nc";
  write_climatology(FieldSeries({.paths = {truth_in(folder)}, .missing = {"t2m"}}), path, {.window = 1});
  const ClimatologyFields climatology(path, {.names = {"u850", "t2m"}, .units = {"", "K"}, .source = "f.nc"}, kBand);
  CHECK(climatology.holds(kStart));
  CHECK(climatology.holds(kStart + 12));
  CHECK_FALSE(climatology.holds(kStart - 1));
  CHECK_FALSE(climatology.holds(kStart + 13));
  CHECK(climatology.read(time_at(kStart + 6)) == std::vector<float>{1110, 1111, 1120, 1121, 110, 111, 120, 121});
  CHECK_THROWS_WITH(ClimatologyFields(path, {.names = {"t2m"}, .units = {"degC"}, .source = "f.nc"}, kBand),
                    "f.nc: channel t2m is in degC, but in K in " + path);
  CHECK_THROWS_WITH(ClimatologyFields(path, {.names = {"sp"}, .units = {""}, .source = "f.nc"}, kBand),
                    path + " has no channel sp, which f.nc has; it has t2m, u850; --channels chooses what is scored");
}
