// Starts by number and by date, and the times of steps: over files, New Year, holes, and years in names.
#include "data/fields/starts.h"

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "data/fields/field_series.h"
#include "data/fields/spread_steps.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;
using testing::TemporaryFolder;

namespace {

using Steps = std::vector<std::int64_t>;

constexpr double kDecember30 = (17 * 365 + 4 - 2) * 24;  // 2017-12-30T00 in hours since 2001-01-01

std::vector<double> hours_from(double first, std::int64_t steps) {
  std::vector<double> hours;
  for (std::int64_t i = 0; i < steps; ++i) hours.push_back(first + 6 * static_cast<double>(i));
  return hours;
}

// Two files around New Year 2018, six-hourly from 2017-12-30T00 on: eight steps, then four.
struct TwoFiles {
  TwoFiles() {
    testing::write_labelled_fields(folder / "a.h5", {8, 1, 2, 2}, {{"t2m"}, {"K"}, hours_from(kDecember30, 8)});
    testing::write_labelled_fields(folder / "b.h5", {4, 1, 2, 2}, {{"t2m"}, {"K"}, hours_from(kDecember30 + 48, 4)});
  }
  FieldSeries series(bool spans = true) const {
    return FieldSeries({.paths = {folder.path().string()}, .spans_files = spans});
  }

  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("starts: one by number or by date, in UTC, and a day is its first hour") {
  const TwoFiles files;
  const FieldSeries series = files.series();
  const StepTimes times(series);
  const auto steps = [&](const std::string& text) { return StartRequest::one("--start", text).steps(series, times); };
  CHECK(steps("5") == Steps{5});
  CHECK(steps("2017-12-31T18") == Steps{7});
  CHECK(steps("2018-01-01T00") == Steps{8});
  CHECK(steps("2018-01-01T06:00") == Steps{9});
  CHECK(steps("2018-01-01") == Steps{8});
  CHECK_THROWS_WITH(steps("12"), "start step 12 is not in the data, which has 12 steps");
  CHECK_THROWS_WITH(steps("-1"), ContainsSubstring("start step -1 is not in the data"));
  CHECK_THROWS_WITH(steps("2018-01-01T03"),
                    ContainsSubstring("--start 2018-01-01T03: there is no t2m at 2018-01-01T03:00"));
  CHECK_THROWS_WITH(steps("2018-01-02"),
                    "--start 2018-01-02: there is no t2m at 2018-01-02T00:00: the steps of the "
                    "data, " +
                        (files.folder / "a.h5").string() + ", ..., are from 2017-12-30T00:00 to 2018-01-01T18:00");
  for (const char* text : {"tomorrow", "", "1.5", "2018-1-1", "2018-12-20T6", "2018-12-20 06"})
    CHECK_THROWS_WITH(StartRequest::one("--start", text), ContainsSubstring("is neither a step nor a date"));
  CHECK_THROWS_WITH(StartRequest::one("--start", "2018-02-29"), ContainsSubstring("--start: '2018-02-29' is no date"));
}

TEST_CASE("starts: a range of dates has both ends, the last day whole") {
  const TwoFiles files;
  const FieldSeries series = files.series();
  const StepTimes times(series);
  const auto steps = [&](const std::string& text) {
    return StartRequest::range("--starts", text).steps(series, times);
  };
  CHECK(steps("2:7:2") == Steps{2, 4, 6});
  CHECK(steps("7:2:-2") == Steps{7, 5, 3});
  CHECK(steps("2017-12-31T00:2018-01-01T00:12h") == Steps{4, 6, 8});
  CHECK(steps("2017-12-31T06:00:2018-01-01T06:00:12h") == Steps{5, 7, 9});
  CHECK(steps("2017-12-31:2018-01-01:12h") == Steps{4, 6, 8, 10});
  CHECK(steps("2017-12-31T12:2018-01-01T00") == Steps{6, 7, 8});
  CHECK(steps("2018-01-01:2018-01-01:1d") == Steps{8});
  CHECK(steps("2018-01-01T06:2018-01-01T06:1h") == Steps{9});
  CHECK(steps("2017-12-30T00:2018-01-01T18:360min").size() == 12);
  CHECK_THROWS_WITH(steps("2017-12-31:2018-01-01:3h"), ContainsSubstring("there is no t2m at 2017-12-31T03:00"));
  CHECK_THROWS_WITH(steps("2018-01-01:2018-01-03:1d"), ContainsSubstring("there is no t2m at 2018-01-02T00:00"));
  CHECK_THROWS_WITH(steps("0:13"), ContainsSubstring("start step 12 is not in the data"));
  const auto refused = [](const std::string& text, const char* words) {
    CHECK_THROWS_WITH(StartRequest::range("--starts", text), ContainsSubstring(words));
  };
  refused("2018-01-02:2018-01-01", "is reversed");
  refused("2018-01-01T06:2018-01-01T00:6h", "is reversed");
  refused("2018-01-01:2018-01-02:12", "the interval is '12', but a lead time is");
  refused("2018-01-01:2018-01-02:-6h", "the interval is '-6h'");
  refused("2018-01-01:3", "is of neither form, steps A:B:S or dates FIRST:LAST:12h");
  refused("2018-01-01:", "is of neither form");
  refused("2018-13-01:2019-01-01", "'2018-13-01' is no date");
}

TEST_CASE("starts: which channel is not there at a date, where channels lie in files of their own") {
  const TemporaryFolder folder;
  testing::write_labelled_fields(folder / "t.h5", {6, 1, 2, 2}, {{"t2m"}, {"K"}, hours_from(kDecember30, 6)});
  testing::write_labelled_fields(folder / "u.h5", {4, 1, 2, 2}, {{"u10"}, {"m/s"}, hours_from(kDecember30, 4)});
  const FieldSeries series({.paths = {folder.path().string()}});
  const StepTimes times(series);
  CHECK(series.steps() == 4);
  CHECK_THROWS_WITH(StartRequest::one("--start", "2017-12-31T00").steps(series, times),
                    ContainsSubstring("there is no u10 at 2017-12-31T00:00"));
  CHECK_THROWS_WITH(StartRequest::one("--start", "2017-12-31T12").steps(series, times),
                    ContainsSubstring("there is no t2m, u10 at 2017-12-31T12:00"));
}

TEST_CASE("step times: the step some time later is found over holes and in other files") {
  const TemporaryFolder folder;
  std::vector<double> hours = hours_from(kDecember30, 6);
  for (std::size_t i = 3; i < 6; ++i) hours[i] += 12;  // two steps are missing
  testing::write_labelled_fields(folder / "a.h5", {6, 1, 2, 2}, {{"t2m"}, {"K"}, hours});
  const FieldSeries series({.paths = {folder / "a.h5"}});
  const StepTimes times(series);
  CHECK(times.step_hours() == 6);
  CHECK(times.after(0, 2) == 2);
  CHECK_FALSE(times.after(0, 3));
  CHECK_FALSE(times.after(0, 4));
  CHECK(times.after(0, 5) == 3);
  CHECK(times.after(0, 7) == 5);
  CHECK_FALSE(times.after(0, 8));
  CHECK(times.hours_after(2, 2) == times.hours(2) + 12);

  const TwoFiles two;
  for (const bool spans : {true, false}) {
    const FieldSeries both = two.series(spans);
    const StepTimes of_both(both);
    CHECK(of_both.after(7, 1) == 8);
    CHECK(of_both.after(0, 11) == 11);
    CHECK_FALSE(of_both.after(8, 4));
  }
}

TEST_CASE("step times: files without `time` have those of the year in their name, or none") {
  const TemporaryFolder folder;
  testing::write_fields(folder / "2017.h5", {365, 1, 2, 2});
  testing::write_fields(folder / "2020.h5", {366, 1, 2, 2});
  const FieldSeries years({.paths = {folder.path().string()}});
  const StepTimes times(years);
  CHECK(times.are_known());
  CHECK(times.step_hours() == 24);
  CHECK(times.at(times.hours(0) + 31 * 24) == 31);
  CHECK(StartRequest::one("--start", "2020-02-29").steps(years, times) == Steps{365 + 59});
  CHECK_FALSE(times.after(364, 1));

  testing::write_fields(folder / "2021.h5", {7, 1, 2, 2});  // no year's number of steps
  const FieldSeries unknown({.paths = {folder / "2021.h5"}});
  const StepTimes none(unknown);
  CHECK_FALSE(none.are_known());
  CHECK(none.after(2, 4) == 6);
  CHECK_FALSE(none.after(2, 5));
  CHECK_THROWS_WITH(StartRequest::one("--start", "2021-01-01").steps(unknown, none),
                    "--start 2021-01-01 is a date, but the data, " + (folder / "2021.h5").string() +
                        ", do not tell the times of their steps: give the number of a step");
}

TEST_CASE("starts: ranges of steps as Python's range has them, to the first step and no further") {
  const TwoFiles files;
  const FieldSeries series = files.series();
  const StepTimes times(series);
  const auto steps = [&](const std::string& text) {
    return StartRequest::range("--starts", text).steps(series, times);
  };
  CHECK(steps("0:1") == Steps{0});
  CHECK(steps("0:4:4") == Steps{0});
  CHECK(steps("0:5:4") == Steps{0, 4});
  CHECK(steps("3:-1:-1") == Steps{3, 2, 1, 0});
  CHECK(steps("11:0:-5") == Steps{11, 6, 1});
  CHECK(steps("11:0:-11") == Steps{11});
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"3:3", " is empty"},
           {"3:2", " is empty"},
           {"2:3:-1", " is empty"},
           {"0:4:0", ": the step must not be 0"},
           {"3:-2:-1", " goes below step 0"},
           {"0:4:x", " is of neither form, steps A:B:S or dates FIRST:LAST:12h"},
           {"-1:4", " is of neither form, steps A:B:S or dates FIRST:LAST:12h"}})
    CHECK_THROWS_WITH(StartRequest::range("--starts", text), "--starts " + text + words);
  CHECK_THROWS_WITH(steps("13:11:-1"), "start step 13 is not in the data, which has 12 steps");
  CHECK_FALSE(StartRequest::range("--starts", "0:4").are_dates());
  CHECK(StartRequest::range("--starts", "2018-01-01:2018-01-01").are_dates());
}

TEST_CASE("step times: the steps in a day, if they are whole ones, and the step nearest in time") {
  const TemporaryFolder folder;
  const auto with = [&](double step) {
    testing::write_labelled_fields(folder / "a.h5", {2, 1, 2, 2}, {.hours = {0, step}});
    return steps_per_day(FieldSeries({.paths = {folder / "a.h5"}}));
  };
  CHECK(with(6) == 4);
  CHECK(with(1) == 24);
  CHECK(with(0.5) == 48);
  CHECK(with(24) == 1);
  CHECK(with(5) == 0);
  CHECK(with(48) == 0);
  testing::write_fields(folder / "none.h5", {2, 1, 2, 2});
  CHECK(steps_per_day(FieldSeries({.paths = {folder / "none.h5"}})) == 0);

  const TwoFiles files;
  const FieldSeries series = files.series();
  const StepTimes times(series);
  const double third = times.hours(3);
  CHECK(times.at(third) == 3);
  CHECK_FALSE(times.at(third + 0.1));
  CHECK(times.at(third + 0.1, 0.1) == 3);
  CHECK(times.at(third - 0.1, 0.1) == 3);
  CHECK_FALSE(times.at(third + 0.2, 0.1));
  CHECK_FALSE(times.at(third - 0.2, 0.1));
  CHECK(times.at(third + 0.0001) == 3);  // within a second
}
