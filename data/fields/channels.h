// Names of channels (variables).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isobar {

// The 20 names of the tutorial in its order: u10, v10, t2m, sp, msl, t850, ...
const std::vector<std::string>& tutorial_channel_names();

// The names of channels that have no given names: the tutorial's names for 20 channels, else c0, c1, ...
std::vector<std::string> default_channel_names(std::int64_t channels);

}  // namespace isobar
