#include "data/fields/field_axes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "kernels/common/check.h"

namespace isobar {
namespace {

using Names = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view name, Names names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_pressure_unit(std::string_view units) {
  return is_one_of(units,
                   {"hPa", "millibar", "millibars", "mbar", "mb", "Pa", "hectopascal", "hectopascals", "pascal"});
}

bool is_latitude_unit(std::string_view units) {
  return is_one_of(units, {"degrees_north", "degree_north", "degree_N", "degrees_N", "degreeN", "degreesN"});
}

bool is_longitude_unit(std::string_view units) {
  return is_one_of(units, {"degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE"});
}

}  // namespace

std::string text_attribute(const ArrayInfo& array, const std::string& name) {
  const auto found = array.attributes.find(name);
  return found != array.attributes.end() && found->second.texts.size() == 1 ? found->second.texts.front() : "";
}

FieldAxis field_axis(const std::string& name, const ArrayInfo* coordinate) {
  const std::string units = coordinate != nullptr ? text_attribute(*coordinate, "units") : "";
  const std::string standard = coordinate != nullptr ? text_attribute(*coordinate, "standard_name") : "";
  if (standard == "forecast_period" ||
      is_one_of(name, {"prediction_timedelta", "step", "lead_time", "forecast_period", "lead"}))
    return FieldAxis::lead;
  if (is_one_of(name, {"dayofyear", "day_of_year", kCalendarDay})) return FieldAxis::day;
  if (name == "hour") return FieldAxis::hour;
  if (is_latitude_unit(units) || standard == "latitude" || is_one_of(name, {"lat", "latitude"}))
    return FieldAxis::latitude;
  if (is_longitude_unit(units) || standard == "longitude" || is_one_of(name, {"lon", "longitude"}))
    return FieldAxis::longitude;
  if (units.find(" since ") != std::string::npos || is_one_of(name, {"time", "valid_time", "timestep"}))
    return FieldAxis::time;
  if (name == "expver") return FieldAxis::experiment;
  if (standard.find("hybrid") != std::string::npos || is_one_of(name, {"hybrid", "model_level", "ml"}))
    return FieldAxis::model_level;
  if (standard == "air_pressure" || is_pressure_unit(units) || name.starts_with("isobaric") ||
      is_one_of(name, {"level", "levels", "lev", "plev", "pressure", "pressure_level"}))
    return FieldAxis::pressure_level;
  return FieldAxis::other;
}

std::optional<double> hours_per_unit(const std::string& units) {
  struct Unit {
    std::string_view name;
    double hours;
  };
  constexpr double kSecond = 1.0 / 3600;
  static constexpr std::array<Unit, 17> kUnits{{{"days", 24},
                                                {"day", 24},
                                                {"d", 24},
                                                {"hours", 1},
                                                {"hour", 1},
                                                {"h", 1},
                                                {"hr", 1},
                                                {"minutes", 1.0 / 60},
                                                {"minute", 1.0 / 60},
                                                {"min", 1.0 / 60},
                                                {"seconds", kSecond},
                                                {"second", kSecond},
                                                {"s", kSecond},
                                                {"milliseconds", kSecond / 1e3},
                                                {"microseconds", kSecond / 1e6},
                                                {"nanoseconds", kSecond / 1e9},
                                                {"ns", kSecond / 1e9}}};
  const auto found = std::ranges::find(kUnits, std::string_view(units), &Unit::name);
  return found != kUnits.end() ? std::optional(found->hours) : std::nullopt;
}

double hectopascals_per_unit(const ArrayInfo& coordinate, const std::string& where) {
  const std::string units = text_attribute(coordinate, "units");
  ISOBAR_CHECK(units.empty() || is_pressure_unit(units), where, ": its levels are in '", units,
               "', which is no unit of pressure that isobar knows: hPa, millibars, Pa");
  return is_one_of(units, {"Pa", "pascal"}) ? 0.01 : 1;
}

}  // namespace isobar
