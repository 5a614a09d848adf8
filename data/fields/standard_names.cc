#include "data/fields/standard_names.h"

#include <algorithm>
#include <array>

#include "data/fields/channels.h"
#include "data/fields/units.h"

namespace isobar {
namespace {

struct StandardName {
  const char *variable, *name, *unit;
};

constexpr std::array kNames{
    StandardName{"t2m", "air_temperature", "K"},
    StandardName{"d2m", "dew_point_temperature", "K"},
    StandardName{"u10", "eastward_wind", "m s-1"},
    StandardName{"v10", "northward_wind", "m s-1"},
    StandardName{"msl", "air_pressure_at_mean_sea_level", "Pa"},
    StandardName{"sp", "surface_air_pressure", "Pa"},
    StandardName{"skt", "surface_temperature", "K"},
    StandardName{"sst", "sea_surface_temperature", "K"},
    StandardName{"siconc", "sea_ice_area_fraction", "1"},
    StandardName{"sd", "lwe_thickness_of_surface_snow_amount", "m"},
    StandardName{"tcc", "cloud_area_fraction", "1"},
    StandardName{"tcwv", "atmosphere_mass_content_of_water_vapor", "kg m-2"},
    StandardName{"tp", "lwe_thickness_of_precipitation_amount", "m"},
    StandardName{"ssrd", "integral_wrt_time_of_surface_downwelling_shortwave_flux_in_air", "J m-2"},
    StandardName{"strd", "integral_wrt_time_of_surface_downwelling_longwave_flux_in_air", "J m-2"},
    StandardName{"lsm", "land_area_fraction", "1"},
    StandardName{"t", "air_temperature", "K"},
    StandardName{"u", "eastward_wind", "m s-1"},
    StandardName{"v", "northward_wind", "m s-1"},
    StandardName{"w", "lagrangian_tendency_of_air_pressure", "Pa s-1"},
    StandardName{"z", "geopotential", "m2 s-2"},
    StandardName{"q", "specific_humidity", "kg kg-1"},
    StandardName{"r", "relative_humidity", "%"},
    StandardName{"d", "divergence_of_wind", "s-1"},
};

}  // namespace

std::string standard_name(const std::string& channel, const std::string& unit) {
  const std::string variable = channel_parts(channel).variable;
  const auto* const found = std::ranges::find(kNames, variable, &StandardName::variable);
  return found != kNames.end() && !unit.empty() && same_unit(unit, found->unit) ? found->name : "";
}

std::string cf_unit(const std::string& unit) {
  return !unit.empty() && same_unit(unit, "1") ? "1" : unit;
}

}  // namespace isobar
