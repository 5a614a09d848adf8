// Names of channels (variables).
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace isobar {

// The 20 names of the tutorial in its order: u10, v10, t2m, sp, msl, t850, ...
const std::vector<std::string>& tutorial_channel_names();

// The names of channels that have no given names: the tutorial's names for 20 channels, else c0, c1, ...
std::vector<std::string> default_channel_names(std::int64_t channels);

// The short name of ECMWF for a variable with a name of ECMWF, WeatherBench 2 or another known source, with its level
// in hPa: "t2m" for 2m_temperature, "u850" for u_component_of_wind_850, u_850 and u850. Other names stay as they are.
std::string short_channel_name(const std::string& name);

// The short name of a variable without its level, "u" for u_component_of_wind; an unknown name stays as it is.
std::string short_variable_name(const std::string& name);

// The name of a channel in two parts. Only variables that are known here have levels: u10 and c0 have none.
struct ChannelParts {
  std::string variable;  // short, without its level: "u" for u850
  std::string level;     // hPa, its digits; empty: none

  double hectopascals() const { return std::strtod(level.c_str(), nullptr); }  // of the level
};
ChannelParts channel_parts(const std::string& channel);

// The name of WeatherBench 2 for a short name without level, "temperature" for t; empty if it has none.
std::string long_variable_name(const std::string& short_name);

// The same, if both are certain. None for a name that is not known, and for a variable of the free atmosphere without a
// level ("t").
std::optional<ChannelParts> known_channel_parts(const std::string& channel);

// Whether two names are spellings of one channel.
bool same_channel(const std::string& a, const std::string& b);

}  // namespace isobar
