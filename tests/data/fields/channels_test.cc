// Names of channels: ECMWF's, WeatherBench's, with and without levels.
#include "data/fields/channels.h"

#include <string>
#include <utility>
#include <vector>

#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("channels: names of one variable are the same, names of others are not") {
  CHECK(short_channel_name("2m_temperature") == "t2m");
  CHECK(short_channel_name("2t") == "t2m");
  CHECK(short_channel_name("temperature_850") == "t850");
  CHECK(short_channel_name("u_component_of_wind850") == "u850");
  CHECK(short_channel_name("geopotential") == "z");
  CHECK(short_channel_name("t850") == "t850");
  CHECK(short_channel_name("c0") == "c0");
  CHECK(short_channel_name("air") == "air");
  CHECK(short_channel_name("850") == "850");
  CHECK(short_variable_name("total_precipitation") == "tp");
  CHECK(long_variable_name("tp") == "total_precipitation");
  CHECK(long_variable_name("air").empty());
  CHECK(same_channel("v850", "v_component_of_wind_850"));
  CHECK_FALSE(same_channel("v850", "v500"));
  CHECK_FALSE(same_channel("u10", "10v"));
}

TEST_CASE("channels: every variable goes by the names of NetCDF files, WeatherBench 2 and GRIB files") {
  const std::vector<std::vector<std::string>> variables = {{"t2m", "2m_temperature", "2t"},
                                                           {"d2m", "2m_dewpoint_temperature", "2d"},
                                                           {"u10", "10m_u_component_of_wind", "10u"},
                                                           {"v10", "10m_v_component_of_wind", "10v"},
                                                           {"msl", "mean_sea_level_pressure"},
                                                           {"sp", "surface_pressure"},
                                                           {"skt", "skin_temperature"},
                                                           {"sst", "sea_surface_temperature"},
                                                           {"siconc", "sea_ice_cover", "ci"},
                                                           {"sd", "snow_depth"},
                                                           {"tcc", "total_cloud_cover"},
                                                           {"tcw", "total_column_water"},
                                                           {"tcwv", "total_column_water_vapour"},
                                                           {"tp", "total_precipitation"},
                                                           {"ssrd", "surface_solar_radiation_downwards"},
                                                           {"strd", "surface_thermal_radiation_downwards"},
                                                           {"tisr", "toa_incident_solar_radiation"},
                                                           {"lsm", "land_sea_mask"},
                                                           {"t", "temperature"},
                                                           {"u", "u_component_of_wind"},
                                                           {"v", "v_component_of_wind"},
                                                           {"w", "vertical_velocity"},
                                                           {"z", "geopotential"},
                                                           {"q", "specific_humidity"},
                                                           {"r", "relative_humidity"},
                                                           {"vo", "vorticity"},
                                                           {"d", "divergence"}};
  for (const std::vector<std::string>& names : variables) {
    CHECK(long_variable_name(names[0]) == names[1]);
    for (const std::string& name : names) {
      INFO(name);
      CHECK(short_variable_name(name) == names[0]);
      CHECK(short_channel_name(name + "_850") == names[0] + "850");
      CHECK(short_channel_name(name + "50") == names[0] + "50");
    }
  }
}

TEST_CASE("channels: a name in two parts, and whether both are certain") {
  const auto parts = [](const std::string& channel) {
    const ChannelParts found = channel_parts(channel);
    return std::pair(found.variable, found.level);
  };
  using Parts = std::pair<std::string, std::string>;
  CHECK(parts("u850") == Parts{"u", "850"});
  CHECK(parts("geopotential_1000") == Parts{"z", "1000"});
  CHECK(parts("u10") == Parts{"u10", ""});
  CHECK(parts("10u") == Parts{"u10", ""});
  CHECK(parts("c0") == Parts{"c0", ""});
  CHECK(parts("air_850") == Parts{"air_850", ""});
  CHECK(parts("_850") == Parts{"_850", ""});
  CHECK(parts("") == Parts{"", ""});
  CHECK(channel_parts("t50").hectopascals() == 50);
  CHECK(channel_parts("t2m").hectopascals() == 0);

  for (const char* certain : {"t850", "u500", "v_500", "w1", "z1000", "q50", "r850", "vo300", "d200", "t2m", "tp"})
    CHECK(known_channel_parts(certain));
  for (const char* uncertain : {"t", "d", "t0", "msl500", "c0", "air500", ""})
    CHECK_FALSE(known_channel_parts(uncertain));
}

TEST_CASE("channels: 20 without names are the tutorial's, others go by their numbers") {
  CHECK(default_channel_names(3) == std::vector<std::string>{"c0", "c1", "c2"});
  CHECK(default_channel_names(0).empty());
  CHECK(default_channel_names(20) == std::vector<std::string>{"u10",   "v10",   "t2m",  "sp",   "msl",  "t850", "u1000",
                                                              "v1000", "z1000", "u850", "v850", "z850", "u500", "v500",
                                                              "z500",  "t500",  "z50",  "r500", "r850", "tcwv"});
  CHECK(default_channel_names(21).front() == "c0");
  CHECK(default_channel_names(21).back() == "c20");
}
