// Calendars and time features against known dates.
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>

#include "data/era5/calendar.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("CF time axes give known dates") {
  CHECK(TimeUnits("hours since 1900-01-01 00:00:00", "", "f").at(1040928).iso() == "2018-10-01T00:00");
  CHECK(TimeUnits("hours since 1900-01-01 00:00:0.0", "gregorian", "f").at(990558).iso() == "2013-01-01T06:00");
  CHECK(TimeUnits("days since 1970-01-01", "standard", "f").at(11016.25).iso() == "2000-02-29T06:00");
  CHECK(TimeUnits("minutes since 2001-03-01T12:30:00Z", "proleptic_gregorian", "f").at(-1471).iso() ==
        "2001-02-28T11:59");
  CHECK(TimeUnits("seconds since 1970-1-1 00:00:00 +00:00", "", "f").at(1709251140).iso() == "2024-02-29T23:59");
  CHECK(TimeUnits("hours since 1800-01-01 00:00:0.0", "", "f").at(1867128).iso() == "2013-01-01T00:00");
}

TEST_CASE("Dates before the reform of 1582 are Julian in the standard calendar") {
  // Old NOAA files count hours from 1-1-1: 17628096 hours are 2012-01-01 there, two days earlier in the proleptic one.
  CHECK(TimeUnits("hours since 1-1-1 00:00:0.0", "", "f").at(17628096).iso() == "2012-01-01T00:00");
  CHECK(TimeUnits("hours since 1-1-1 00:00:0.0", "proleptic_gregorian", "f").at(17628096).iso() == "2012-01-03T00:00");
}

TEST_CASE("Time features are angles of the day and of the year") {
  const StepTime time = TimeUnits("hours since 2016-01-01", "", "f").at(24 * 31 + 6);  // 1 February, 6 h, leap year
  CHECK(time.hour() == 6);
  CHECK(time.day_of_year == 31.25);
  CHECK(time.days_in_year == 366);
  const auto f = time.features();
  const double angle = 2 * std::numbers::pi * 31.25 / 366;
  CHECK(std::abs(f[0] - 1) < 1e-15);
  CHECK(std::abs(f[1]) < 1e-15);
  CHECK(std::abs(f[2] - std::sin(angle)) < 1e-15);
  CHECK(std::abs(f[3] - std::cos(angle)) < 1e-15);
}

TEST_CASE("Time features know the minutes of an hour") {
  const StepTime time = TimeUnits("minutes since 2016-02-01", "", "f").at(6 * 60 + 30);
  CHECK(time.hour() == testing::Approx(6.5).margin(1e-9));
  CHECK(time.features()[0] == testing::Approx(std::sin(2 * std::numbers::pi * 6.5 / 24)));
  CHECK(time.features()[2] == testing::Approx(std::sin(2 * std::numbers::pi * (31 + 6.5 / 24) / 366)));
}

TEST_CASE("Times beyond the years 0 to 9999 and dates that do not exist are refused") {
  using testing::ContainsSubstring;
  const TimeUnits hours("hours since 1979-01-01", "", "a.h5: 'time'");
  for (double far : {1e300, -1e300, 1e9, std::nan(""), std::numeric_limits<double>::infinity()})
    CHECK_THROWS_WITH(hours.at(far), ContainsSubstring("a.h5: 'time': the time "));
  CHECK(TimeUnits("days since 9999-12-31", "", "f").at(0.5).iso() == "9999-12-31T12:00");
  CHECK_THROWS_AS(TimeUnits("days since 9999-12-31", "", "f").at(1), Error);
  for (const char* date : {"2001-02-29", "2001-02-31", "1900-02-29", "2001-04-31", "2001-01-00", "10000-01-01",
                           "-1-01-01", "9223372036854775807-01-01", "-9223372036854775808-01-01"})
    CHECK_THROWS_WITH(TimeUnits(std::string("days since ") + date, "", "f"), ContainsSubstring(date));
  CHECK_NOTHROW(TimeUnits("days since 2000-02-29", "", "f"));
  CHECK_NOTHROW(TimeUnits("days since 1500-02-29", "standard", "f"));  // a leap year of the Julian calendar
  CHECK_THROWS_AS(TimeUnits("days since 1500-02-29", "proleptic_gregorian", "f"), Error);
}

TEST_CASE("Steps without a time axis are spread over the file's year") {
  CHECK(spread_over_year(2013, 5, 1460).iso() == "2013-01-02T06:00");
  CHECK(spread_over_year(2013, 1459, 1460).iso() == "2013-12-31T18:00");
  CHECK(spread_over_year(2012, 1463, 1464).iso() == "2012-12-31T18:00");
  CHECK(spread_over_year(2013, 5, 1460).hour() == testing::Approx(6).margin(1e-9));
  CHECK(spread_over_year(2013, 365, 730).day_of_year == 182.5);
  CHECK(spread_over_year(2000, 0, 4).days_in_year == 366);
  CHECK(spread_over_year(1900, 0, 4).days_in_year == 365);
  CHECK(spread_over_year(1904, 0, 4).days_in_year == 366);
}

TEST_CASE("Time axes that cannot be read are refused") {
  using testing::ContainsSubstring;
  CHECK_THROWS_WITH(TimeUnits("fortnights since 1900-01-01", "", "a.h5"),
                    ContainsSubstring("a.h5: cannot read the time units \"fortnights since 1900-01-01\""));
  CHECK_THROWS_AS(TimeUnits("hours", "", "a.h5"), Error);
  CHECK_THROWS_AS(TimeUnits("hours since 1900-13-01", "", "a.h5"), Error);
  CHECK_THROWS_AS(TimeUnits("hours since 1900-01-01 00:00:00 +02:00", "", "a.h5"), Error);
  CHECK_THROWS_WITH(TimeUnits("days since 1900-01-01", "360_day", "a.h5"), ContainsSubstring("\"360_day\""));
}
