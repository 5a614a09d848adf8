// Standard names of the CF conventions, against the standard name table.
#include "data/fields/standard_names.h"

#include <array>
#include <string>

#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("standard names: every variable has its own, in its unit alone") {
  struct Known {
    const char *channel, *unit, *name;
  };
  constexpr std::array kKnown{
      Known{"t2m", "K", "air_temperature"},
      Known{"d2m", "K", "dew_point_temperature"},
      Known{"u10", "m/s", "eastward_wind"},
      Known{"v10", "m s**-1", "northward_wind"},
      Known{"msl", "Pa", "air_pressure_at_mean_sea_level"},
      Known{"sp", "Pa", "surface_air_pressure"},
      Known{"skt", "K", "surface_temperature"},
      Known{"sst", "K", "sea_surface_temperature"},
      Known{"siconc", "(0 - 1)", "sea_ice_area_fraction"},
      Known{"sd", "m", "lwe_thickness_of_surface_snow_amount"},
      Known{"tcc", "1", "cloud_area_fraction"},
      Known{"tcwv", "kg m**-2", "atmosphere_mass_content_of_water_vapor"},
      Known{"tp", "m", "lwe_thickness_of_precipitation_amount"},
      Known{"ssrd", "J/m2", "integral_wrt_time_of_surface_downwelling_shortwave_flux_in_air"},
      Known{"strd", "J m-2", "integral_wrt_time_of_surface_downwelling_longwave_flux_in_air"},
      Known{"lsm", "1", "land_area_fraction"},
      Known{"t850", "K", "air_temperature"},
      Known{"u_500", "m s-1", "eastward_wind"},
      Known{"v50", "m s-1", "northward_wind"},
      Known{"w500", "Pa/s", "lagrangian_tendency_of_air_pressure"},
      Known{"geopotential_500", "m2/s2", "geopotential"},
      Known{"q700", "kg/kg", "specific_humidity"},
      Known{"r850", "%", "relative_humidity"},
      Known{"d300", "s-1", "divergence_of_wind"},
  };
  for (const auto& [channel, unit, name] : kKnown) {
    INFO(channel);
    CHECK(standard_name(channel, unit) == name);
    CHECK(standard_name(channel, "mm/day").empty());
    CHECK(standard_name(channel, "").empty());
  }
  CHECK(standard_name("c0", "K").empty());
  CHECK(standard_name("tcw", "kg m-2").empty());  // the table has none for liquid, ice and vapour together
}

TEST_CASE("standard names: a share has the unit 1, and other units stay as they are spelled") {
  for (const char* unit : {"1", "(0 - 1)", "~", "dimensionless", "m/m"}) CHECK(cf_unit(unit) == "1");
  CHECK(cf_unit("m s**-1") == "m s**-1");
  CHECK(cf_unit("%") == "%");
  CHECK(cf_unit("").empty());
}
