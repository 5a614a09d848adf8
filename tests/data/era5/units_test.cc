// Units: one unit has many spellings, and two units never look the same.
#include <string>
#include <vector>

#include "data/era5/channels.h"
#include "data/era5/units.h"
#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("units: every spelling of a unit is the same, and no spelling of another") {
  const std::vector<std::vector<std::string>> units = {
      {"K", "kelvin", "Kelvin", "degrees Kelvin", "degK", " K "},
      {"degC", "celsius", "Celsius", "C", "°C", "deg C", "degrees_celsius", "degree_Celsius"},
      {"m/s", "m s-1", "m s**-1", "m s^-1", "m.s-1", "m*s**-1", "m·s⁻¹", "metres per second", "meter second-1"},
      {"Pa", "pascal", "Pascals", "kg m-1 s-2", "N m**-2", "N/m2"},
      {"hPa", "mbar", "mb", "millibars", "hectopascal"},
      {"%", "percent", "Percent"},
      {"m2/s2", "m**2 s**-2", "m2 s-2", "m^2/s^2", "J kg**-1", "J/kg"},
      {"kg/m2", "kg m**-2", "kg m-2", "kg m^-2"},
      {"kg/kg", "kg kg**-1", "1", "dimensionless", "(0 - 1)", "~"},
      {"g/kg", "g kg-1"},
      {"J m**-2", "J/m2", "W s m-2"},
      {"W m**-2", "W/m2", "J m-2 s-1", "J/m2/s"},
      {"kg m**-2 s**-1", "kg/m2/s", "kg m-2 s-1"},
      {"m", "metre", "meters"},
      {"mm", "millimeters"},
      {"mm/h", "mm hr-1", "mm per hour"},
      {"mm/day", "mm d-1"},
      {"s", "seconds"},
      {"m of water equivalent"},
      {"gpm"},
      {"m/s2"},
      {"s/m"},
      {"(code table 4.2)"},
  };
  for (std::size_t i = 0; i < units.size(); ++i)
    for (const std::string& a : units[i])
      for (std::size_t j = 0; j < units.size(); ++j)
        for (const std::string& b : units[j]) {
          CAPTURE(a, b);
          CHECK(same_unit(a, b) == (i == j));
        }
}

TEST_CASE("units: the tutorial's variables and their other names have known units") {
  for (const std::string& name : tutorial_channel_names()) {
    CAPTURE(name);
    CHECK_FALSE(known_unit(name).empty());
  }
  CHECK(known_unit("t2m") == "K");
  CHECK(known_unit("2m_temperature") == "K");
  CHECK(known_unit("sp") == "Pa");
  CHECK(known_unit("z500") == "m2/s2");
  CHECK(known_unit("geopotential_500") == "m2/s2");
  CHECK(known_unit("r850") == "%");
  CHECK(known_unit("tcwv") == "kg/m2");
  for (const char* name : {"c0", "tp", "500", "t", "zust", ""}) CHECK(known_unit(name) == "");
}

TEST_CASE("units: people see the data's unit, in the spelling they know") {
  CHECK(shown_unit("u10", "m s**-1") == "m/s");
  CHECK(shown_unit("u10", "") == "m/s");
  CHECK(shown_unit("t2m", "degC") == "degC");
  CHECK(shown_unit("tp", "mm") == "mm");
  CHECK(shown_unit("c0", "") == "");
}
