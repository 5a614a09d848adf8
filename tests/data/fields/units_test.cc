// Units: one unit has many spellings, and two units never look the same.
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "data/fields/channels.h"
#include "data/fields/units.h"
#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("units: every spelling of a unit is the same, and no spelling of another") {
  const std::vector<std::vector<std::string>> units = {
      {"K", "kelvin", "Kelvin", "degrees Kelvin", "degK", " K ", "deg k", "deg_K", "degree kelvin", "degree_Kelvin",
       "degrees_kelvin"},
      {"degC", "celsius", "Celsius", "C", "°C", "deg C", "degrees_celsius", "degree_Celsius", "degc", "deg_c",
       "degree c", "degrees C", "degree celsius", "deg Celsius", "degrees celsius"},
      {"m/s", "m s-1", "m s**-1", "m s^-1", "m.s-1", "m*s**-1", "m·s⁻¹", "metres per second", "meter second-1"},
      {"Pa", "pascal", "Pascals", "kg m-1 s-2", "N m**-2", "N/m2"},
      {"hPa", "mbar", "mb", "millibars", "hectopascal"},
      {"%", "percent", "Percent", "per cent", "pct"},
      {"m2/s2", "m**2 s**-2", "m2 s-2", "m^2/s^2", "J kg**-1", "J/kg"},
      {"kg/m2", "kg m**-2", "kg m-2", "kg m^-2"},
      {"kg/kg", "kg kg**-1", "1", "dimensionless", "(0 - 1)", "~", "-", "(0-1)", "unitless", "fraction"},
      {"g/kg", "g kg-1"},
      {"J m**-2", "J/m2", "W s m-2"},
      {"W m**-2", "W/m2", "J m-2 s-1", "J/m2/s"},
      {"kg m**-2 s**-1", "kg/m2/s", "kg m-2 s-1"},
      {"m", "metre", "meters"},
      {"mm", "millimeters", "millimetre", "millimeter"},
      {"kg", "kilogram", "kilograms"},
      {"g", "gram", "grams"},
      {"J", "joule", "Joules"},
      {"W", "watt", "watts"},
      {"N", "newton", "newtons"},
      {"rad", "radian", "radians"},
      {"deg", "degree", "degrees", "°"},
      {"h", "hour", "hours", "hr"},
      {"d", "day", "days"},
      {"mm/h", "mm hr-1", "mm per hour"},
      {"mm/day", "mm d-1"},
      {"s", "seconds", "second", "sec", "secs"},
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
  const std::vector<std::pair<const char*, std::vector<const char*>>> known{
      {"m/s",
       {"u10", "v10", "10u", "10v", "u10m", "v10m", "10m_u_component_of_wind", "10m_v_component_of_wind", "u500", "v50",
        "u_component_of_wind_850", "v_component_of_wind_300"}},
      {"K",
       {"t2m", "2t", "d2m", "2d", "skt", "sst", "2m_temperature", "2m_dewpoint_temperature", "skin_temperature",
        "sea_surface_temperature", "T850", "temperature_500"}},
      {"Pa", {"sp", "msl", "mslp", "surface_pressure", "mean_sea_level_pressure"}},
      {"kg/m2", {"tcwv", "total_column_water_vapour"}},
      {"m2/s2", {"z1000", "geopotential_50"}},
      {"%", {"r500", "relative_humidity_700"}}};
  for (const auto& [unit, names] : known)
    for (const char* name : names) {
      CAPTURE(name);
      CHECK(known_unit(name) == unit);
    }
}

TEST_CASE("units: people see the data's unit, in the spelling they know") {
  CHECK(shown_unit("u10", "m s**-1") == "m/s");
  CHECK(shown_unit("u10", "") == "");  // nobody says it
  CHECK(shown_unit("t2m", "degC") == "degC");
  CHECK(shown_unit("tp", "mm") == "mm");
  CHECK(shown_unit("c0", "") == "");
}

TEST_CASE("units: a mean tells what a variable of a known name cannot be in") {
  const auto refused = [](const std::string& variable, double mean) { return !can_be_in_known_unit(variable, mean); };
  for (const double kelvin : {200.0, 278.5, 300.0}) CHECK_FALSE(refused("t2m", kelvin));
  for (const double celsius : {-60.0, 0.0, 15.0, 40.0}) CHECK(refused("t850", celsius));
  CHECK_FALSE(refused("sp", 96500));
  CHECK(refused("sp", 965));
  CHECK(refused("msl", 101.3));
  CHECK_FALSE(refused("z500", 54000));
  CHECK(refused("z500", 5500));
  CHECK_FALSE(refused("z500", 100000));  // between half and twice the standard atmosphere's 54,600
  CHECK(refused("z500", 112000));
  CHECK(refused("z500", 26000));
  CHECK(refused("geopotential_500", 5500));
  CHECK_FALSE(refused("z1000", 70));
  CHECK_FALSE(refused("u10", -0.1));
  CHECK_FALSE(refused("r850", 60));
  CHECK_FALSE(refused("c0", 1e9));
  // The first and the last mean of each unit.
  const std::vector<std::tuple<std::string, double, double>> bounds{
      {"t2m", 150, 400}, {"sp", 3e4, 1.2e5}, {"u10", -150, 150}, {"r850", -5, 150}, {"tcwv", -1, 150}};
  for (const auto& [variable, least, most] : bounds) {
    INFO(variable);
    CHECK_FALSE(refused(variable, least));
    CHECK_FALSE(refused(variable, most));
    CHECK(refused(variable, least - 0.1));
    CHECK(refused(variable, most + 0.1));
  }
  CHECK(refused("z800", 900));
  CHECK_FALSE(refused("z850", 900));  // near the ground every mean may be
}

TEST_CASE("units: powers are read wherever they stand") {
  CHECK(same_unit("m^+2", "m2"));
  CHECK(same_unit("m^-12", "1/m12"));
  CHECK_FALSE(same_unit("m12", "m1"));
  CHECK(same_unit("s m", "m s"));
  CHECK(same_unit("m s-1 m s-1", "m2 s-2"));
  CHECK(same_unit("J/kg/K", "J kg-1 K-1"));
  CHECK(same_unit("m/s K", "m s-1 K"));  // a / is of the next factor alone
  CHECK(same_unit("K per second", "K s-1"));
  CHECK(same_unit("kg2 m-1 s-2", "kg Pa"));
  CHECK(same_unit("Pa2", "kg2 m-2 s-4"));
  CHECK(same_unit("m/m", "1"));
  CHECK(same_unit("10 m", "10 m"));
  CHECK_FALSE(same_unit("10 m", "100 m"));
  CHECK_FALSE(same_unit("K", "mK"));
  CHECK(same_unit("\tK ", "K"));
  CHECK_FALSE(same_unit("(a) m", "(a) s"));
  CHECK_FALSE(same_unit("s", "m"));
  CHECK_FALSE(same_unit("", "m"));
  CHECK(same_unit("", "1"));
  for (const auto& [sign, plain] : std::vector<std::pair<std::string, std::string>>{
           {"m²", "m2"}, {"m³", "m3"}, {"m⁴", "m4"}, {"m⁻²", "m-2"}, {"W⋅m⁻²", "W m-2"}, {"m² s⁻²", "m2 s-2"}}) {
    INFO(sign);
    CHECK(same_unit(sign, plain));
  }
  CHECK_FALSE(same_unit("m³", "m²"));
  CHECK(same_unit("m^99", "m^120"));  // a power is at most 99
}

TEST_CASE("units: every name of the tables has its unit") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> names = {
      {"m/s",
       {"u10", "V10", "10u", "10v", "u10m", "v10m", "10m_u_component_of_wind", "10m_v_component_of_wind", "u850", "v1",
        "u_component_of_wind_500", "v_component_of_wind_50"}},
      {"K",
       {"2t", "d2m", "2d", "skt", "sst", "2m_dewpoint_temperature", "skin_temperature", "sea_surface_temperature",
        "t850", "temperature_500"}},
      {"Pa", {"msl", "mslp", "surface_pressure", "mean_sea_level_pressure"}},
      {"kg/m2", {"TCWV", "total_column_water_vapour"}},
      {"m2/s2", {"z50"}},
      {"%", {"relative_humidity_850"}},
      {"", {"u", "500", "q850", "u_850", "t850x", "850t"}}};
  for (const auto& [unit, list] : names)
    for (const std::string& name : list) {
      INFO(name);
      CHECK(known_unit(name) == unit);
    }
}
