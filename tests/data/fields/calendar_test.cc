// Calendars and time features against known dates.
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>

#include "data/fields/calendar.h"
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

TEST_CASE("Every unit of time and every way to say UTC is read, and no other") {
  const auto hours_per = [](const std::string& unit) {
    return TimeUnits(unit + " since 1970-01-01", "", "f").hours_per_unit();
  };
  for (const char* unit : {"s", "second", "seconds", "sec", "secs"}) CHECK(hours_per(unit) == 1.0 / 3600);
  for (const char* unit : {"minute", "minutes", "min", "mins"}) CHECK(hours_per(unit) == 1.0 / 60);
  for (const char* unit : {"h", "hour", "hours", "hr", "hrs"}) CHECK(hours_per(unit) == 1);
  for (const char* unit : {"d", "day", "days"}) CHECK(hours_per(unit) == 24);
  for (const char* unit : {"m", "ss", "hs", "months", "years", "Days"}) CHECK_THROWS_AS(hours_per(unit), Error);

  for (const char* zone : {"", "Z", " Z", " UTC", " utc", "+00:00", " -00:00", " 00:00", "+0000", " 0:00", "   UTC"})
    CHECK(TimeUnits("hours since 1970-01-01 03:00" + std::string(zone), "", "f").hours_since_1970(2) == 5);
  for (const char* zone : {" +01:00", " GMT", "x", " 1"})
    CHECK_THROWS_AS(TimeUnits("hours since 1970-01-01 03:00" + std::string(zone), "", "f"), Error);
  CHECK(TimeUnits("hours since 1970-01-01T01:30:45.5", "", "f").hours_since_1970(0) == 1.5 + 45.5 / 3600);
  CHECK(TimeUnits("minutes since 1969-12-31 23:59:60", "", "f").hours_since_1970(0) == 0);  // a leap second
  CHECK(TimeUnits("days since 1969-12-31", "", "f").hours_since_1970(2.5) == 36);
}

TEST_CASE("The first and the last of what a date and a time may hold") {
  const auto since = [](const std::string& date, const char* calendar = "proleptic_gregorian") {
    return TimeUnits("days since " + date, calendar, "f").at(0).iso();
  };
  for (const char* good : {"0-01-01", "9999-12-31", "2001-01-31", "2001-12-01", "2001-04-30", "2001-06-30",
                           "2001-09-30", "2001-11-30", "2001-03-31", "2001-05-31", "2001-07-31", "2001-08-31",
                           "2001-10-31", "2000-02-29", "2001-02-28", "2001-01-01 23:59", "2001-01-01 00:00:60.5"})
    CHECK_NOTHROW(since(good));
  for (const char* bad : {"2001-00-01", "2001-13-01", "2001-01-32", "2001-06-31", "2001-09-31", "2001-11-31",
                          "2001-12-00", "2100-02-29", "2001-01-01 24:00", "2001-01-01 00:60", "2001-01-01 -1:00",
                          "2001-01-01 00:-1", "2001-01-01 00:00:61", "2001-01-01 00:00:-1"})
    CHECK_THROWS_AS(since(bad), Error);
  CHECK(since("0-01-01") == "0000-01-01T00:00");
  CHECK(since("0-03-01") == "0000-03-01T00:00");
  CHECK_THROWS_AS(TimeUnits("seconds since 0-01-01", "proleptic_gregorian", "f").at(-1), Error);
  CHECK(TimeUnits("seconds since 9999-12-31 23:59", "", "f").at(29).iso() == "9999-12-31T23:59");
  CHECK_NOTHROW(TimeUnits("seconds since 9999-12-31 23:59", "", "f").at(59));
  CHECK_THROWS_AS(TimeUnits("seconds since 9999-12-31 23:59", "", "f").at(60), Error);

  // The 4th of October 1582 was followed by the 15th.
  CHECK(since("1582-10-15", "standard") == "1582-10-15T00:00");
  CHECK(since("1582-10-04", "standard") == "1582-10-14T00:00");
  CHECK(since("1582-10-14", "standard") == "1582-10-24T00:00");
  CHECK(since("1582-09-30", "gregorian") == "1582-10-10T00:00");
  CHECK(since("1582-11-01", "standard") == "1582-11-01T00:00");
  CHECK(since("1581-12-31", "standard") == "1582-01-10T00:00");
  CHECK(since("1583-01-01", "standard") == "1583-01-01T00:00");
  CHECK(since("4-02-29", "standard") == "0004-02-27T00:00");
  CHECK(since("100-02-29", "standard") == "0100-02-27T00:00");
  CHECK(since("100-03-01", "standard") == "0100-02-28T00:00");
}

TEST_CASE("Every day of four centuries follows the one before it") {
  const TimeUnits days("days since 1600-01-01", "proleptic_gregorian", "f");
  std::int64_t year = 1600, day = 0;
  for (std::int64_t d = 0; d < 146098; ++d) {
    const StepTime time = days.at(static_cast<double>(d));
    const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    REQUIRE(time.year == year);
    REQUIRE(time.day_of_year == static_cast<double>(day));
    REQUIRE(time.days_in_year == (leap ? 366 : 365));
    if (++day == (leap ? 366 : 365)) ++year, day = 0;
  }
  CHECK(days.at(58).iso() == "1600-02-28T00:00");
  CHECK(days.at(59.999).iso() == "1600-02-29T23:59");
  CHECK(days.at(59.9999).iso() == "1600-03-01T00:00");  // to the nearest minute
  CHECK(days.at(365.5).iso() == "1600-12-31T12:00");
}

TEST_CASE("A date is a whole day, or an instant of it to the minute") {
  const auto read = [](const char* text) { return parse_date(text, "--start"); };
  constexpr double kOctober = 427320;  // hours from 1970 to 2018-10-01
  CHECK(read("2018-10-01").begin == kOctober);
  CHECK(read("2018-10-01").length == 24);
  CHECK(read("2018-10-01T00").begin == kOctober);
  CHECK(read("2018-10-01T00").length == 0);
  CHECK(read("2018-10-01T06").begin == kOctober + 6);
  CHECK(read("2018-10-01T06:30").begin == kOctober + 6.5);
  CHECK(read("2018-10-01T23:59").begin == kOctober + 24 - 1.0 / 60);
  CHECK(read("2018-10-01T23:59").length == 0);
  CHECK(read("2020-02-29").begin - read("2020-02-28").begin == 24);
  CHECK(read("1500-03-01").begin - read("1500-02-28").begin == 24);  // the Gregorian calendar, also before 1582
  for (const char* text : {"", "2018-10", "2018-10-1", "18-10-01", "2018-10-01T", "2018-10-01T24", "2018-10-01T06:60",
                           "2018-10-01T06:30:00", "2018-10-01 06", "2018-10-01Z", "2019-02-29", "1500-02-29",
                           "2018-00-10", "2018-13-01", "2018-10-00", "2018-10-32", "2018-10-01T-1"}) {
    INFO(text);
    CHECK_THROWS_WITH(
        parse_date(text, "--start"),
        "--start: '" + std::string(text) + "' is no date like 2018-10-01, 2018-10-01T06 or 2018-10-01T06:30");
  }
}

TEST_CASE("A time is written to the nearest minute, over the end of a month and of a year") {
  CHECK(StepTime{2018, 364.99999, 365}.iso() == "2019-01-01T00:00");
  CHECK(StepTime{2018, 364.9993, 365}.iso() == "2018-12-31T23:59");
  CHECK(StepTime{2020, 58.99999, 366}.iso() == "2020-02-29T00:00");
  for (const double hours : {-0.5, 0.0, 427326.25, 8.0e6})
    CHECK(time_at(hours).hours_since_1970() == testing::Approx(hours).epsilon(0).margin(1e-6));
  CHECK(time_at(-0.5).iso() == "1969-12-31T23:30");
  CHECK_THROWS_WITH(time_at(1e9), testing::ContainsSubstring("is not within the years 0 to 9999"));
}
