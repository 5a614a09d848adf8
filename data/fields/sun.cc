#include "data/fields/sun.h"

#include <cmath>
#include <numbers>

#include "data/fields/calendar.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kRadiansPerDegree = std::numbers::pi / 180;
constexpr double kDaysTo2000 = 10957.5;                                // from 1970-01-01T00 to 2000-01-01T12
constexpr double kFirstHour = -62091 * 24.0, kEndHour = 84006 * 24.0;  // 1800-01-01 and 2200-01-01

// Negated, so that NaN is refused too.
void check_time(double hours) {
  if (hours >= kFirstHour && hours < kEndHour) return;
  const TimeUnits units("hours since 1970-01-01", "proleptic_gregorian", "the sun's position");
  throw_error("the sun's position is known from 1800 to 2199, not at ", units.at(hours).iso());
}

}  // namespace

double Sun::hour_angle_at(double longitude) const {
  return std::remainder(hour_angle + longitude, 360.0) * kRadiansPerDegree;
}

Sun sun_at(double hours) {
  check_time(hours);
  const double d = hours / 24 - kDaysTo2000;
  const double g = (357.529 + 0.98560028 * d) * kRadiansPerDegree;
  const double q = 280.459 + 0.98564736 * d;
  const double longitude = (q + 1.915 * std::sin(g) + 0.020 * std::sin(2 * g)) * kRadiansPerDegree;
  const double obliquity = (23.439 - 3.6e-7 * d) * kRadiansPerDegree;
  const double right_ascension =
      std::atan2(std::cos(obliquity) * std::sin(longitude), std::cos(longitude)) / kRadiansPerDegree;
  const double hour_of_day = hours - 24 * std::floor(hours / 24);

  Sun sun;
  sun.sin_declination = std::sin(obliquity) * std::sin(longitude);
  sun.cos_declination = std::sqrt(1 - sun.sin_declination * sun.sin_declination);
  sun.equation_of_time = std::remainder(q - right_ascension, 360.0);
  sun.distance = 1.00014 - 0.01671 * std::cos(g) - 0.00014 * std::cos(2 * g);
  sun.hour_angle = 15 * (hour_of_day - 12) + sun.equation_of_time;
  return sun;
}

}  // namespace isobar
