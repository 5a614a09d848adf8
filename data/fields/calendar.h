// The times of steps: CF time axes ("hours since 1900-01-01 00:00:00"), or steps spread evenly over a year.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace isobar {

// Whether a year of the Gregorian calendar has 366 days.
constexpr bool is_leap(std::int64_t year) {
  return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

inline constexpr std::int64_t kTimeFeatures = 4;  // number of time features of a step

// An instant in the Gregorian calendar. Days count from 0 on 1 January.
struct StepTime {
  std::int64_t year = 0;
  double day_of_year = 0;  // whole days and fraction, in [0, days_in_year)
  double days_in_year = 365;

  double hour() const;  // of the day, in [0, 24)
  // sin and cos of the hour of day, sin and cos of the day of year, with the angles 2π·hour/24 and
  // 2π·day_of_year/days_in_year.
  std::array<double, kTimeFeatures> features() const;
  std::string iso() const;  // "2013-01-01T06:00", rounded to a minute
  double hours_since_1970() const;
};
// The inverse of hours_since_1970. Error outside the years 0 to 9999.
StepTime time_at(double hours_since_1970);

// A CF time axis: `value` units after the reference date.
class TimeUnits {
 public:
  // units: "<seconds|minutes|hours|days> since <date>[ <time>]"; calendar: standard, gregorian, proleptic_gregorian or
  // "". Error beginning with `where` for an invalid date and for a year outside 0 to 9999.
  TimeUnits(const std::string& units, const std::string& calendar, const std::string& where);
  StepTime at(double value) const;  // Error outside the years 0 to 9999
  double hours_per_unit() const { return seconds_per_unit_ / 3600; }
  double hours_since_1970(double value) const { return (reference_seconds_ + value * seconds_per_unit_) / 3600; }

 private:
  std::string where_;
  double reference_seconds_ = 0;  // since 1970-01-01
  double seconds_per_unit_ = 1;
};

// The hours that a date means, in UTC: a whole day for "2018-10-01", an instant for "2018-12-20T06" and for
// "2018-12-20T06:30".
struct DateText {
  double begin = 0;   // hours since 1970-01-01T00
  double length = 0;  // hours: 24 for a day, 0 for an instant
};
// Error beginning with `where` for any other text, and for a date that does not exist.
DateText parse_date(const std::string& text, const std::string& where);

// The time of step `step`, if `steps` steps divide `year` evenly.
StepTime spread_over_year(std::int64_t year, std::int64_t step, std::int64_t steps);

}  // namespace isobar
