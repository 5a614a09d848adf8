#include "data/fields/calendar.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <numbers>
#include <optional>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kSecondsPerDay = 86400;
constexpr std::int64_t kFirstYear = 0, kLastYear = 9999;  // range of reference dates and times: four digits

struct Date {
  std::int64_t year = 1970, month = 1, day = 1;
};

// Days since 1970-01-01 in the Gregorian calendar, and back. Years start in March, so that the leap day is last; 400
// years have 146,097 days.
std::int64_t days_from_date(Date date) {
  const std::int64_t year = date.year - (date.month <= 2 ? 1 : 0);
  const std::int64_t era = (year >= 0 ? year : year - 399) / 400;
  const std::int64_t year_of_era = year - era * 400;
  const std::int64_t day_of_year = (153 * (date.month + (date.month > 2 ? -3 : 9)) + 2) / 5 + date.day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

Date date_from_days(std::int64_t days) {
  days += 719468;
  const std::int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  const std::int64_t day_of_era = days - era * 146097;
  const std::int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const std::int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t shifted_month = (5 * day_of_year + 2) / 153;
  const std::int64_t month = shifted_month + (shifted_month < 10 ? 3 : -9);
  return {year_of_era + era * 400 + (month <= 2 ? 1 : 0), month, day_of_year - (153 * shifted_month + 2) / 5 + 1};
}

bool is_date(Date date, bool julian) {
  constexpr std::array<std::int64_t, 12> kDays = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (date.year < kFirstYear || date.year > kLastYear || date.month < 1 || date.month > 12) return false;
  const bool leap_day = date.month == 2 && (julian ? date.year % 4 == 0 : is_leap(date.year));
  return date.day >= 1 && date.day <= kDays[static_cast<std::size_t>(date.month - 1)] + (leap_day ? 1 : 0);
}

// Days since 1970-01-01 of a date in the Julian calendar.
std::int64_t days_from_julian_date(Date date) {
  const std::int64_t year = date.year - (date.month <= 2 ? 1 : 0);
  const std::int64_t day_of_year = (153 * (date.month + (date.month > 2 ? -3 : 9)) + 2) / 5 + date.day - 1;
  const std::int64_t leap_days = static_cast<std::int64_t>(std::floor(static_cast<double>(year) / 4));
  return year * 365 + leap_days + day_of_year - 719470;
}

// CF's standard calendar changes from Julian to Gregorian on 15 October 1582.
bool is_julian(Date date) {
  return date.year < 1582 || (date.year == 1582 && (date.month < 10 || (date.month == 10 && date.day < 15)));
}

std::optional<double> seconds_in(const std::string& unit) {
  const std::string singular = unit.size() > 1 && unit.back() == 's' ? unit.substr(0, unit.size() - 1) : unit;
  if (singular == "second" || singular == "sec" || unit == "s") return 1.0;
  if (singular == "minute" || singular == "min") return 60.0;
  if (singular == "hour" || singular == "hr" || unit == "h") return 3600.0;
  if (singular == "day" || unit == "d") return kSecondsPerDay;
  return std::nullopt;
}

// The text after the reference time is empty or one of the ways to write UTC.
bool means_utc(std::string zone) {
  zone.erase(0, zone.find_first_not_of(' '));
  return zone.empty() || zone == "Z" || zone == "UTC" || zone == "utc" || zone == "+00:00" || zone == "-00:00" ||
         zone == "00:00" || zone == "+0000" || zone == "0:00";
}

StepTime from_seconds(double seconds) {
  const double days = std::floor(seconds / kSecondsPerDay);
  const Date date = date_from_days(static_cast<std::int64_t>(days));
  const std::int64_t whole_days = static_cast<std::int64_t>(days) - days_from_date({date.year, 1, 1});
  const double fraction = (seconds - days * kSecondsPerDay) / kSecondsPerDay;
  return {date.year, static_cast<double>(whole_days) + fraction, is_leap(date.year) ? 366.0 : 365.0};
}

}  // namespace

double StepTime::hour() const {
  return 24 * (day_of_year - std::floor(day_of_year));
}

std::array<double, kTimeFeatures> StepTime::features() const {
  const double day_angle = 2 * std::numbers::pi * hour() / 24;
  const double year_angle = 2 * std::numbers::pi * day_of_year / days_in_year;
  return {std::sin(day_angle), std::cos(day_angle), std::sin(year_angle), std::cos(year_angle)};
}

std::string StepTime::iso() const {
  const auto minutes = static_cast<std::int64_t>(std::llround(day_of_year * 1440));
  const Date date = date_from_days(days_from_date({year, 1, 1}) + minutes / 1440);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d", static_cast<int>(date.year),
                static_cast<int>(date.month), static_cast<int>(date.day), static_cast<int>(minutes / 60 % 24),
                static_cast<int>(minutes % 60));
  return text;
}

double StepTime::hours_since_1970() const {
  return 24 * (static_cast<double>(days_from_date({year, 1, 1})) + day_of_year);
}

StepTime time_at(double hours_since_1970) {
  static const TimeUnits hours("hours since 1970-01-01", "proleptic_gregorian", "a date");
  return hours.at(hours_since_1970);
}

TimeUnits::TimeUnits(const std::string& units, const std::string& calendar, const std::string& where) : where_(where) {
  const bool standard = calendar.empty() || calendar == "standard" || calendar == "gregorian";
  ISOBAR_CHECK(standard || calendar == "proleptic_gregorian", where, ": calendar \"", calendar,
               "\" is not one of standard, gregorian, proleptic_gregorian");
  char unit[16] = "";
  long long year = 0, month = 0, day = 0;
  int used = 0;
  const bool has_date =
      std::sscanf(units.c_str(), "%15s since %lld-%lld-%lld%n", unit, &year, &month, &day, &used) == 4;
  const auto scale = seconds_in(unit);
  std::string rest = has_date ? units.substr(static_cast<std::size_t>(used)) : "";
  int hours = 0, minutes = 0, end = 0;
  double seconds = 0;
  if (!rest.empty() && (rest[0] == 'T' || rest[0] == ' ')) {
    if (std::sscanf(rest.c_str() + 1, "%d:%d%n", &hours, &minutes, &end) == 2) {
      rest.erase(0, static_cast<std::size_t>(end) + 1);
      if (std::sscanf(rest.c_str(), ":%lf%n", &seconds, &end) == 1) rest.erase(0, static_cast<std::size_t>(end));
    }
  }
  const Date date{year, month, day};
  const bool julian = standard && is_julian(date);
  const bool sensible =
      is_date(date, julian) && hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60 && seconds >= 0 && seconds < 61;
  ISOBAR_CHECK(has_date && scale && sensible && means_utc(rest), where, ": cannot read the time units \"", units,
               "\"; expected something like \"hours since 1900-01-01 00:00:00\" (UTC)");
  const std::int64_t days = julian ? days_from_julian_date(date) : days_from_date(date);
  reference_seconds_ = static_cast<double>(days) * kSecondsPerDay + hours * 3600.0 + minutes * 60.0 + seconds;
  seconds_per_unit_ = *scale;
}

StepTime TimeUnits::at(double value) const {
  const double seconds = reference_seconds_ + value * seconds_per_unit_;
  static const double first = static_cast<double>(days_from_date({kFirstYear, 1, 1})) * kSecondsPerDay;
  static const double end = static_cast<double>(days_from_date({kLastYear + 1, 1, 1})) * kSecondsPerDay;
  ISOBAR_CHECK(seconds >= first && seconds < end, where_, ": the time ", value, " is not within the years ", kFirstYear,
               " to ", kLastYear);
  return from_seconds(seconds);
}

DateText parse_date(const std::string& text, const std::string& where) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, used = 0;
  const char* rest = text.c_str();
  bool is_valid = std::sscanf(rest, "%4d-%2d-%2d%n", &year, &month, &day, &used) == 3 && used == 10 &&
                  is_date({year, month, day}, /*julian=*/false);
  rest += used;
  const bool is_day = *rest == '\0';
  if (is_valid && !is_day) {
    used = 0;
    const int fields = std::sscanf(rest, "T%2d%n:%2d%n", &hour, &used, &minute, &used);
    is_valid =
        (fields == 1 || fields == 2) && rest[used] == '\0' && hour >= 0 && hour < 24 && minute >= 0 && minute < 60;
  }
  ISOBAR_CHECK(is_valid, where, ": '", text, "' is no date like 2018-10-01, 2018-10-01T06 or 2018-10-01T06:30");
  const auto days = static_cast<double>(days_from_date({year, month, day}));
  return {days * 24 + hour + minute / 60.0, is_day ? 24.0 : 0.0};
}

StepTime spread_over_year(std::int64_t year, std::int64_t step, std::int64_t steps) {
  const double days = is_leap(year) ? 366.0 : 365.0;
  return {year, days * static_cast<double>(step) / static_cast<double>(steps), days};
}

}  // namespace isobar
