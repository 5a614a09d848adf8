#include "data/fields/channels.h"

namespace isobar {

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

}  // namespace isobar
