// Axes by their names, units and standard names (CF conventions, section 4).
#include "data/fields/field_axes.h"

#include <map>
#include <string>
#include <vector>

#include "tests/harness/testing.h"

using namespace isobar;

namespace {

ArrayInfo coordinate_with(const std::string& attribute, const std::string& text) {
  ArrayInfo array{.name = "x"};
  array.attributes = {{attribute, Attribute{.texts = {text}}}};
  return array;
}

}  // namespace

TEST_CASE("axes: by their names, if nothing else is told") {
  const std::map<FieldAxis, std::vector<std::string>> names = {
      {FieldAxis::time, {"time", "valid_time", "timestep"}},
      {FieldAxis::lead, {"prediction_timedelta", "step", "lead_time", "forecast_period", "lead"}},
      {FieldAxis::day, {"dayofyear", "day_of_year", "calendar_day"}},
      {FieldAxis::hour, {"hour"}},
      {FieldAxis::pressure_level,
       {"level", "levels", "lev", "plev", "pressure", "pressure_level", "isobaric", "isobaricInhPa"}},
      {FieldAxis::model_level, {"hybrid", "model_level", "ml"}},
      {FieldAxis::latitude, {"lat", "latitude"}},
      {FieldAxis::longitude, {"lon", "longitude"}},
      {FieldAxis::experiment, {"expver"}},
      {FieldAxis::other, {"", "x", "number", "bnds", "Time", "hours"}}};
  for (const auto& [axis, list] : names)
    for (const std::string& name : list) {
      INFO(name);
      CHECK(field_axis(name, nullptr) == axis);
    }
}

TEST_CASE("axes: units and standard names tell what a strange name does not") {
  const std::map<FieldAxis, std::vector<std::string>> units = {
      {FieldAxis::time, {"hours since 1970-01-01"}},
      {FieldAxis::pressure_level,
       {"hPa", "millibar", "millibars", "mbar", "mb", "Pa", "hectopascal", "hectopascals", "pascal"}},
      {FieldAxis::latitude, {"degrees_north", "degree_north", "degree_N", "degrees_N", "degreeN", "degreesN"}},
      {FieldAxis::longitude, {"degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE"}},
      {FieldAxis::other, {"hours", "degrees", "m", ""}}};
  for (const auto& [axis, list] : units)
    for (const std::string& unit : list) {
      INFO(unit);
      const ArrayInfo coordinate = coordinate_with("units", unit);
      CHECK(field_axis("x", &coordinate) == axis);
    }
  const std::map<FieldAxis, std::string> standard_names = {
      {FieldAxis::lead, "forecast_period"},
      {FieldAxis::latitude, "latitude"},
      {FieldAxis::longitude, "longitude"},
      {FieldAxis::pressure_level, "air_pressure"},
      {FieldAxis::model_level, "atmosphere_hybrid_sigma_pressure_coordinate"}};
  for (const auto& [axis, name] : standard_names) {
    INFO(name);
    const ArrayInfo coordinate = coordinate_with("standard_name", name);
    CHECK(field_axis("x", &coordinate) == axis);
  }
  // Hybrid levels that are named as pressure is.
  const ArrayInfo hybrid = coordinate_with("standard_name", "atmosphere_hybrid_height_coordinate");
  CHECK(field_axis("level", &hybrid) == FieldAxis::model_level);
  // A list of texts is no unit.
  ArrayInfo two{.name = "x"};
  two.attributes = {{"units", Attribute{.texts = {"hPa", "hPa"}}}};
  CHECK(text_attribute(two, "units").empty());
  CHECK(field_axis("x", &two) == FieldAxis::other);
}

TEST_CASE("axes: lead times in every unit are hours, levels in every unit hPa") {
  const std::map<double, std::vector<std::string>> seconds = {
      {86400, {"days", "day", "d"}},      {3600, {"hours", "hour", "h", "hr"}},
      {60, {"minutes", "minute", "min"}}, {1, {"seconds", "second", "s"}},
      {1e-3, {"milliseconds"}},           {1e-6, {"microseconds"}},
      {1e-9, {"nanoseconds", "ns"}}};
  for (const auto& [length, list] : seconds)
    for (const std::string& unit : list) {
      INFO(unit);
      CHECK(hours_per_unit(unit).value_or(0) == testing::Approx(length / 3600).epsilon(1e-14));
    }
  for (const char* unit : {"", "months", "Hours", "hours since 2001-01-01"}) CHECK_FALSE(hours_per_unit(unit));

  for (const char* unit : {"Pa", "pascal"}) CHECK(hectopascals_per_unit(coordinate_with("units", unit), "f") == 0.01);
  for (const char* unit : {"hPa", "millibars", "mb", "hectopascal", ""})
    CHECK(hectopascals_per_unit(coordinate_with("units", unit), "f") == 1);
  CHECK_THROWS_WITH(hectopascals_per_unit(coordinate_with("units", "m"), "a.nc: 'level'"),
                    "a.nc: 'level': its levels are in 'm', which is no unit of pressure that isobar knows: hPa, "
                    "millibars, Pa");
}
