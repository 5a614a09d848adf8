// What the subcommands of `isobar data` print.
#pragma once

#include <string>
#include <vector>

#include "data/era5/statistics.h"

namespace isobar {

// A few lines on the data at `path`: a folder in the tutorial's layout (train, valid, test, stats), a folder of .h5
// files with or without statistics, or one file. Files and statistics are opened with every check of the data set.
// all_steps: every value of the fields is read, and a hole is an Error that names file, step and channel.
std::string describe_data(const std::string& path, bool all_steps = false);

// One line a channel: name, mean, standard deviation.
std::string describe_statistics(const Statistics& statistics, const std::vector<std::string>& channel_names);

}  // namespace isobar
