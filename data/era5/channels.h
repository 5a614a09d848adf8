// The names of variables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isobar {

// The tutorial's twenty, in its order: u10, v10, t2m, sp, msl, t850, ...
const std::vector<std::string>& tutorial_channel_names();

// What channels are called where nobody says: the tutorial's names for twenty, else c0, c1, ...
std::vector<std::string> default_channel_names(std::int64_t channels);

}  // namespace isobar
