// Names of channels: ECMWF's, WeatherBench's, with and without levels.
#include "data/fields/channels.h"

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
