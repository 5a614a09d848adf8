// Climatologies: numbers of days, the window, sums against formulas written out, files and their readers.
#include "data/forecasts/climatology.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "data/files/stored_arrays.h"
#include "data/forecasts/climatology_reader.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"
#include "tests/harness/variable_file.h"

using namespace isobar;
using testing::Approx;
using testing::ContainsSubstring;
using testing::TemporaryFolder;
using testing::VariableFile;

namespace {

using Numbers = std::vector<double>;

double hours_of(const std::string& date) {
  return parse_date(date, "").begin;
}

ClimatologySlot slot(const std::string& date, DayNumbers numbers) {
  return climatology_slot(time_at(hours_of(date)), numbers);
}

// A different number for each day, hour and point.
float truth_at(double hours, int row, int column) {
  const double day = std::floor(hours / 24);
  return static_cast<float>(std::fmod(day * 7.3, 11.0) + 0.1 * std::fmod(hours, 24.0) + 3 * row - column);
}

// Daily fields at 0 and 12 h of 2019 to 2021, [time, 2, 3]; but not of the days of 2021 from October on.
const std::string& three_years(const TemporaryFolder& folder) {
  static std::string path;
  path = folder / "truth.nc";
  VariableFile out(path);
  Numbers hours;
  for (double h = hours_of("2019-01-01"); h < hours_of("2021-10-01"); h += 12) hours.push_back(h);
  out.axis("time", hours, "hours since 1970-01-01");
  out.axis("latitude", {10, -10}, "degrees_north");
  out.axis("longitude", {0, 120, 240}, "degrees_east");
  out.variable("t2m", {"time", "latitude", "longitude"}, [&](std::map<std::string, int>& at) {
    return truth_at(hours[static_cast<std::size_t>(at["time"])], at["latitude"], at["longitude"]);
  });
  out.file.write_attribute("t2m", "units", "K");
  out.file.close();
  return path;
}

// The climatology of a day number (from 1) at an hour, by its definition: over all steps, with the weight of the
// distance between their number and this one, counted round the year of 366 numbers.
double defined(double day, double hour, int half, int row, int column, DayNumbers numbers) {
  double sum = 0, weight = 0;
  for (double h = hours_of("2019-01-01") + hour; h < hours_of("2021-10-01"); h += 24) {
    const double year = time_at(h).year == 2020 ? 366 : 365, of_year = std::floor(time_at(h).day_of_year);
    std::vector<double> own{of_year};
    if (numbers == DayNumbers::calendar && year == 365 && of_year >= 59) own = {of_year + 1};
    if (numbers == DayNumbers::dayofyear && year == 365 && of_year == 364) own = {364, 365};
    for (const double number : own) {
      const double apart = std::abs(number - (day - 1)), distance = std::min(apart, 366 - apart);
      const double w = half == 0 ? distance == 0 : std::max(0.0, 1 - distance / half);
      sum += w * static_cast<double>(truth_at(h, row, column));
      weight += w;
    }
  }
  return sum / weight;
}

}  // namespace

TEST_CASE("climatology: 29 February has a number of its own, and 1 March has always the same") {
  CHECK(slot("2019-02-28", DayNumbers::calendar).day == 58);
  CHECK(slot("2019-03-01", DayNumbers::calendar).day == 60);
  CHECK(slot("2020-02-28", DayNumbers::calendar).day == 58);
  CHECK(slot("2020-02-29", DayNumbers::calendar).day == 59);
  CHECK(slot("2020-03-01", DayNumbers::calendar).day == 60);
  CHECK(slot("2019-12-31T18", DayNumbers::calendar) == ClimatologySlot{365, 1080});
  CHECK(slot("2020-12-31T18", DayNumbers::calendar) == ClimatologySlot{365, 1080});
  CHECK(slot("2019-03-01", DayNumbers::dayofyear).day == 59);
  CHECK(slot("2020-03-01", DayNumbers::dayofyear).day == 60);
  CHECK(slot("2019-12-31", DayNumbers::dayofyear).day == 364);
  // A time that rounds to the next year.
  CHECK(climatology_slot({2019, 365 - 1e-9, 365}, DayNumbers::calendar) == ClimatologySlot{0, 0});
}

TEST_CASE("climatology: the window's weights rise from 0 to the middle, with mean 1") {
  CHECK(window_weights(1) == Numbers{1});
  const Numbers w = window_weights(5);
  for (const auto& [i, expected] : {std::pair(0, 0.0), {1, 1.25}, {2, 2.5}, {3, 1.25}, {4, 0.0}})
    CHECK(w[static_cast<std::size_t>(i)] == Approx(expected).margin(1e-15));
  CHECK(std::accumulate(w.begin(), w.end(), 0.0) == Approx(5).epsilon(1e-15));
  CHECK(window_weights(61)[1] == Approx(61.0 / 30 / 30).epsilon(1e-14));
  for (const std::int64_t window : {0, 2, -1, 367}) CHECK_THROWS_AS(window_weights(window), Error);
}

TEST_CASE("climatology: fields equal the definition, with a leap year, round New Year, in any memory and threads") {
  const TemporaryFolder folder;
  const FieldSeries data({.paths = {three_years(folder)}});
  const std::string path = folder / "climatology.nc";
  struct Case {
    DayNumbers days;
    std::int64_t window, max_bytes;
    int threads;
  };
  for (const Case& c : {Case{DayNumbers::calendar, 61, 1 << 30, 1}, Case{DayNumbers::calendar, 61, 1, 2},
                        Case{DayNumbers::dayofyear, 61, 1 << 30, 2}, Case{DayNumbers::calendar, 1, 1, 1},
                        Case{DayNumbers::dayofyear, 1, 1 << 30, 1}}) {
    CHECK(write_climatology(data, path, {c.days, c.window, c.max_bytes, c.threads}).empty());
    const ClimatologyReader reader(path);
    CHECK(reader.day_numbers() == c.days);
    CHECK(reader.units() == std::vector<std::string>{"K"});
    std::array<float, 6> plane{};
    for (const char* date : {"2020-01-01", "2020-01-20T12", "2020-02-28", "2020-02-29T12", "2020-03-01", "2019-03-01",
                             "2020-07-14T12", "2020-12-31T12", "2019-12-31"}) {
      const StepTime time = time_at(hours_of(date));
      const double day = static_cast<double>(climatology_slot(time, c.days).day) + 1;
      reader.read(time, 0, plane.data());
      for (int i = 0; i < 6; ++i) {
        INFO(date << " window " << c.window);
        CHECK(static_cast<double>(plane[static_cast<std::size_t>(i)]) ==
              Approx(defined(day, time.hour(), static_cast<int>(c.window / 2), i / 3, i % 3, c.days)).epsilon(3e-7));
      }
    }
  }
}

TEST_CASE("climatology: every channel and point has its own means, in bands that do not divide the rows") {
  const TemporaryFolder folder;
  const std::string truth = folder / "truth.nc", path = folder / "climatology.nc";
  constexpr int kRows = 3, kColumns = 100, kChannels = 2;
  const auto value = [](int channel, int step, int row, int column) {
    return static_cast<float>(10000 * channel + 1000 * step + 300 * row + column);
  };
  {
    VariableFile out(truth);
    Numbers longitudes(kColumns);
    std::iota(longitudes.begin(), longitudes.end(), 0.0);
    out.axis("time", {0, 24, 48}, "hours since 2020-03-01");
    out.axis("latitude", {10, 0, -10}, "degrees_north");
    out.axis("longitude", longitudes, "degrees_east");
    for (int channel = 0; channel < kChannels; ++channel)
      out.variable(channel == 0 ? "t2m" : "u10", {"time", "latitude", "longitude"},
                   [&](auto& at) { return value(channel, at["time"], at["latitude"], at["longitude"]); });
    out.file.close();
  }
  const FieldSeries data({.paths = {truth}});
  constexpr std::int64_t kRowBytes = 366 * kChannels * kColumns * 12;
  for (const std::int64_t rows : {1, 2, 3}) {
    write_climatology(data, path, {.window = 1, .max_bytes = rows * kRowBytes, .threads = 2});
    const ClimatologyReader reader(path);
    std::vector<float> plane(kRows * kColumns);
    for (int step = 0; step < 3; ++step)
      for (int channel = 0; channel < kChannels; ++channel) {
        reader.read(time_at(hours_of("2020-03-01") + 24 * step), static_cast<std::size_t>(channel), plane.data());
        INFO(rows << " rows at once, step " << step << ", channel " << channel);
        for (int i = 0; i < kRows * kColumns; ++i)
          REQUIRE(plane[static_cast<std::size_t>(i)] == value(channel, step, i / kColumns, i % kColumns));
      }
  }
}

TEST_CASE("climatology: each of many points is smoothed over the days around, of which each counts as it has values") {
  constexpr std::int64_t kDays = 7, kPoints = 600;
  const auto at = [](std::int64_t day, std::int64_t point) { return static_cast<std::size_t>(day * kPoints + point); };
  Numbers sums(kDays * kPoints);
  std::vector<std::uint32_t> counts(sums.size());
  for (std::int64_t day = 0; day < kDays; ++day)
    for (std::int64_t point = 0; point < kPoints; ++point) {
      counts[at(day, point)] = static_cast<std::uint32_t>((day + point) % 3);
      sums[at(day, point)] = counts[at(day, point)] * static_cast<double>(17 * day + point);
    }
  const Numbers weights = window_weights(5);
  Numbers smooth = sums;
  smooth_days(smooth, counts, kPoints, weights, 2);
  for (std::int64_t day = 0; day < kDays; ++day)
    for (std::int64_t point = 0; point < kPoints; ++point) {
      double sum = 0, weight = 0;
      for (std::int64_t j = -2; j <= 2; ++j) {
        const std::size_t from = at((day + j + kDays) % kDays, point);
        sum += weights[static_cast<std::size_t>(j + 2)] * sums[from];
        weight += weights[static_cast<std::size_t>(j + 2)] * counts[from];
      }
      REQUIRE(smooth[at(day, point)] == Approx(sum / weight).epsilon(1e-14));
    }
}

TEST_CASE("climatology: missing points are left out, days without data are told and refused when read") {
  const TemporaryFolder folder;
  const std::string path = folder / "truth.nc", out_path = folder / "c.nc";
  VariableFile out(path);
  Numbers hours;
  for (int day = 0; day < 10; ++day) hours.push_back(hours_of("2020-02-25") + 24 * day);
  out.axis("time", hours, "hours since 1970-01-01");
  out.axis("latitude", {10, -10}, "degrees_north");
  out.axis("longitude", {0}, "degrees_east");
  out.variable("t2m", {"time", "latitude", "longitude"}, [&](std::map<std::string, int>& at) {
    return at["latitude"] == 1 && at["time"] == 4 ? NAN : 1.0 * at["time"];
  });
  out.file.close();
  const FieldSeries data({.paths = {path}, .channels = {"t2m"}, .missing = {"t2m"}});
  CHECK(write_climatology(data, out_path, {.window = 1}) == "no values for 356 of 366 days at 0 h");
  {
    const ClimatologyReader reader(out_path);
    std::array<float, 2> plane{};
    reader.read(time_at(hours_of("2020-02-29")), 0, plane.data());
    CHECK(plane[0] == 4);
    CHECK(std::isnan(plane[1]));
    CHECK_THROWS_WITH(reader.read(time_at(hours_of("2020-03-07")), 0, plane.data()),
                      ContainsSubstring("c.nc has no value of t2m for the day and hour of 2020-03-07T00:00"));
    CHECK_THROWS_WITH(reader.read(time_at(hours_of("2020-02-29T06")), 0, plane.data()),
                      ContainsSubstring("no climatology of the hour of 2020-02-29T06:00"));
  }
  write_climatology(data, out_path, {.window = 3});  // weights 0, 3, 0: the same
  std::array<float, 2> plane{};
  ClimatologyReader(out_path).read(time_at(hours_of("2020-02-29")), 0, plane.data());
  CHECK(plane[0] == 4);
  write_climatology(data, out_path, {.window = 5});
  ClimatologyReader(out_path).read(time_at(hours_of("2020-02-29")), 0, plane.data());
  CHECK(plane[1] == Approx(4));  // (3 + 5) / 2
}

TEST_CASE("climatology: WeatherBench's files are read, axes in any order, a day or a channel may lack") {
  const TemporaryFolder folder;
  const std::string path = folder / "wb.nc";
  VariableFile out(path);
  Numbers days(365);
  std::iota(days.begin(), days.end(), 1);
  out.axis("hour", {0, 12}, "");
  out.axis("dayofyear", days, "");
  out.axis("level", {500, 850}, "");
  out.axis("longitude", {0, 180}, "degrees_east");
  out.axis("latitude", {-45, 45}, "degrees_north");
  out.variable("temperature", {"hour", "dayofyear", "level", "longitude", "latitude"},
               [](std::map<std::string, int>& at) {
                 return 1000 * at["hour"] + at["dayofyear"] + 1 + 0.25 * at["level"] + 0.125 * (1 - at["latitude"]);
               });
  out.file.close();
  const ClimatologyReader reader(path);
  CHECK(reader.channels() == std::vector<std::string>{"t500", "t850"});
  CHECK(reader.day_numbers() == DayNumbers::dayofyear);
  std::array<float, 4> plane{};
  reader.read(time_at(hours_of("2019-03-01T12")), 1, plane.data());
  CHECK(plane == std::array<float, 4>{1060.25f, 1060.25f, 1060.375f, 1060.375f});
  reader.read(time_at(hours_of("2020-03-01T12")), 0, plane.data());
  CHECK(plane[0] == 1061);
  CHECK_THROWS_WITH(reader.read(time_at(hours_of("2020-12-31")), 0, plane.data()),
                    ContainsSubstring("wb.nc has no climatology of the day of 2020-12-31T00:00: number 366"));
}

TEST_CASE("climatology: data without dates, without a grid, and with half hours are refused") {
  const TemporaryFolder folder;
  const std::string path = folder / "t.nc";
  const auto refusal = [&](const Numbers& hours, const std::string& units) {
    {
      VariableFile out(path);
      out.axis("time", hours, units);
      out.axis("latitude", {10, -10}, "degrees_north");
      out.axis("longitude", {0}, "degrees_east");
      out.variable("t2m", {"time", "latitude", "longitude"}, [](auto&) { return 1; });
      out.file.close();
    }
    return testing::error_of([&] { write_climatology(FieldSeries({.paths = {path}}), folder / "c.nc", {}); });
  };
  CHECK(refusal({0, 6}, "") ==
        path + " has no dates: a climatology needs 'time' in units like \"hours since 1970-01-01\"");
  CHECK_THAT(refusal({0, 0.5}, "hours since 2001-01-01"),
             ContainsSubstring("step 1 is at 2001-01-01T00:30, and a climatology is of whole hours"));
  testing::write_labelled_fields(folder / "t.h5", {2, 1, 2, 2}, {.hours = {0, 6}, .latitudes = {10, -10}});
  CHECK_THROWS_WITH(
      write_climatology(FieldSeries({.paths = {folder / "t.h5"}}), folder / "c.nc", {}),
      (folder / "t.h5").string() + " has no latitudes and longitudes, which a climatology is written with");
  CHECK_THROWS_WITH(window_weights(4), "a window of 4 days is not an odd number of days within a year");
  CHECK_FALSE(std::filesystem::exists(folder / "c.nc"));
}

TEST_CASE("climatology: a file tells its axes, its units, the times it is of, and how large it will be") {
  const TemporaryFolder folder;
  const std::string truth = folder / "truth.nc", path = folder / "c.nc";
  {
    VariableFile out(truth);
    out.axis("time", {0, 6, 18, 24, 30, 42}, "hours since 2020-02-29");
    out.axis("latitude", {10, -10}, "degrees_north");
    out.axis("longitude", {0, 120, 240}, "degrees_east");
    for (const char* name : {"t2m", "u10"})
      out.variable(name, {"time", "latitude", "longitude"}, [](auto& at) { return at["time"]; });
    out.file.write_attribute("u10", "units", "m/s");
    out.file.close();
  }
  const FieldSeries all({.paths = {truth}}), part({.paths = {truth}, .range = StepRange{1, 5}});
  CHECK(climatology_bytes(all) == 3 * 366 * 2 * 6 * 4);  // 0, 6 and 18 h
  CHECK(write_climatology(part, path, {.window = 1}) ==
        "no values for 365 of 366 days at 0 h, 364 of 366 days at 6 h, 365 of 366 days at 18 h");
  const ClimatologyReader reader(path);
  CHECK(reader.channels() == std::vector<std::string>{"t2m", "u10"});
  CHECK(reader.units() == std::vector<std::string>{"", "m/s"});
  CHECK(reader.grid().longitudes == Numbers{0, 120, 240});
  REQUIRE(reader.times());
  CHECK((*reader.times())[0] == hours_of("2020-02-29T06"));
  CHECK((*reader.times())[1] == hours_of("2020-03-01T06"));
  const auto text = [&](const std::string& array, const std::string& attribute) {
    return open_stored_arrays(path)->find(array)->attributes.at(attribute).texts.front();
  };
  CHECK(text("hour", "long_name") == "hour of the day (UTC)");
  CHECK(text("calendar_day", "long_name") == "day of a leap year: 29 February is 60, 1 March of every year is 61");
  CHECK(text("latitude", "units") == "degrees_north");
  CHECK(text("longitude", "standard_name") == "longitude");
  write_climatology(part, path, {.days = DayNumbers::dayofyear, .window = 1});
  CHECK(text("dayofyear", "long_name") == "day of the year: 1 March is 60, or 61 in a leap year");
}
