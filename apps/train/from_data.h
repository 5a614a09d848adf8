// What a config leaves to the data: sizes that are null, and how one folder is split into training and validation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/json_config.h"

namespace isobar {

class Era5Dataset;

struct DataSizes {
  std::int64_t channels = 0, height = 0, width = 0;
  bool tells_time = false;  // of every file: by a time axis or a year in the name
};
DataSizes sizes_of(const Era5Dataset& data);

// Whether one of img_size, n_in_channels, n_out_channels, patch_size and time_features is null.
bool sizes_are_left_to_data(const ConfigEntries& entries);

// Fills in those that are null: the data's grid and channels, n_out_channels as n_in_channels, patch_size by
// default_patch_size, time_features where the data tell the time. Returns what it chose, "img_size [30,44], patch_size
// 2"; "" where nothing was null.
std::string fill_sizes(ConfigEntries& entries, const DataSizes& data);

// The largest of 8, 4, 2 that divides both sides and leaves at least 100 tokens, else 1.
std::int64_t default_patch_size(std::int64_t height, std::int64_t width);

// Fills in the ranges that are null where training and validation read the same `steps` steps: validation gets the last
// fifth, rounded up; a range that is given leaves the other what follows it, else what precedes it. Returns the ranges
// chosen, as fill_sizes does. Throws Error where a given range leaves nothing.
std::string fill_ranges(ConfigEntries& entries, std::int64_t steps);

// Both of the above, from the data that the entries name; opened only where something is null, and ranges are left
// alone where train_data_path and valid_data_path differ or allow_overlap is true. A sentence for each, to be told.
std::vector<std::string> fill_from_data(ConfigEntries& entries);

}  // namespace isobar
