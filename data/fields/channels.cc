#include "data/fields/channels.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace isobar {
namespace {

// Names of one variable: that of ECMWF's NetCDF files, that of WeatherBench 2, and that of ECMWF's GRIB files where it
// is another one. Sources: ECMWF's parameter database, the stores of WeatherBench 2.
struct VariableNames {
  const char *netcdf, *weatherbench, *grib = "";
};

constexpr std::array kVariables{
    VariableNames{"t2m", "2m_temperature", "2t"},
    VariableNames{"d2m", "2m_dewpoint_temperature", "2d"},
    VariableNames{"u10", "10m_u_component_of_wind", "10u"},
    VariableNames{"v10", "10m_v_component_of_wind", "10v"},
    VariableNames{"msl", "mean_sea_level_pressure"},
    VariableNames{"sp", "surface_pressure"},
    VariableNames{"skt", "skin_temperature"},
    VariableNames{"sst", "sea_surface_temperature"},
    VariableNames{"siconc", "sea_ice_cover", "ci"},
    VariableNames{"sd", "snow_depth"},
    VariableNames{"tcc", "total_cloud_cover"},
    VariableNames{"tcw", "total_column_water"},
    VariableNames{"tcwv", "total_column_water_vapour"},
    VariableNames{"tp", "total_precipitation"},
    VariableNames{"ssrd", "surface_solar_radiation_downwards"},
    VariableNames{"strd", "surface_thermal_radiation_downwards"},
    VariableNames{"tisr", "toa_incident_solar_radiation"},
    VariableNames{"lsm", "land_sea_mask"},
    VariableNames{"t", "temperature"},
    VariableNames{"u", "u_component_of_wind"},
    VariableNames{"v", "v_component_of_wind"},
    VariableNames{"w", "vertical_velocity"},
    VariableNames{"z", "geopotential"},
    VariableNames{"q", "specific_humidity"},
    VariableNames{"r", "relative_humidity"},
    VariableNames{"vo", "vorticity"},
    VariableNames{"d", "divergence"},
};

const VariableNames* find_variable(std::string_view name) {
  const auto* const found = std::ranges::find_if(kVariables, [&](const VariableNames& names) {
    return name == names.netcdf || name == names.weatherbench || name == names.grib;
  });
  return found == kVariables.end() || name.empty() ? nullptr : found;
}

// The number of characters of a level at the end of a name, "850" or "_850"; 0 if there is none.
std::size_t length_of_level(std::string_view name) {
  std::size_t digits = 0;
  while (digits < name.size() && std::isdigit(static_cast<unsigned char>(name[name.size() - 1 - digits])) != 0)
    ++digits;
  if (digits == 0 || digits == name.size()) return 0;
  return digits + (name[name.size() - 1 - digits] == '_' ? 1 : 0);
}

}  // namespace

const std::vector<std::string>& tutorial_channel_names() {
  static const std::vector<std::string> names = {"u10",   "v10",   "t2m",  "sp",   "msl",  "t850", "u1000",
                                                 "v1000", "z1000", "u850", "v850", "z850", "u500", "v500",
                                                 "z500",  "t500",  "z50",  "r500", "r850", "tcwv"};
  return names;
}

std::vector<std::string> default_channel_names(std::int64_t channels) {
  if (channels == static_cast<std::int64_t>(tutorial_channel_names().size())) return tutorial_channel_names();
  std::vector<std::string> names;
  for (std::int64_t c = 0; c < channels; ++c) names.push_back("c" + std::to_string(c));
  return names;
}

std::string short_variable_name(const std::string& name) {
  const VariableNames* const found = find_variable(name);
  return found != nullptr ? found->netcdf : name;
}

std::string long_variable_name(const std::string& short_name) {
  const VariableNames* const found = find_variable(short_name);
  return found != nullptr ? found->weatherbench : "";
}

ChannelParts channel_parts(const std::string& channel) {
  if (const VariableNames* const found = find_variable(channel)) return {found->netcdf, ""};
  const std::size_t length = length_of_level(channel);
  if (length == 0) return {channel, ""};
  const VariableNames* const found = find_variable(std::string_view(channel).substr(0, channel.size() - length));
  if (found == nullptr) return {channel, ""};
  const std::string level = channel.substr(channel.size() - length);
  return {found->netcdf, level.front() == '_' ? level.substr(1) : level};
}

std::string short_channel_name(const std::string& name) {
  const ChannelParts parts = channel_parts(name);
  return parts.variable + parts.level;
}

std::optional<ChannelParts> known_channel_parts(const std::string& channel) {
  constexpr std::array<std::string_view, 9> kOnLevels{"t", "u", "v", "w", "z", "q", "r", "vo", "d"};
  ChannelParts parts = channel_parts(channel);
  const bool is_on_levels = std::ranges::find(kOnLevels, parts.variable) != kOnLevels.end();
  const bool has_level = !parts.level.empty() && parts.hectopascals() > 0;
  if (find_variable(parts.variable) == nullptr || is_on_levels != has_level || has_level == parts.level.empty())
    return std::nullopt;
  return parts;
}

bool same_channel(const std::string& a, const std::string& b) {
  return a == b || short_channel_name(a) == short_channel_name(b);
}

}  // namespace isobar
