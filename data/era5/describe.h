// What the subcommands of `isobar data` print.
#pragma once

#include <string>
#include <vector>

#include "data/era5/statistics.h"

namespace isobar {

// A few lines on the data at `path`: a folder in the tutorial's layout (train, valid, test, stats), a folder of .h5
// files with or without statistics, or one file. Files and statistics are opened with every check of the data set; NaN
// in the fields is found by reading them, which this does not.
std::string describe_data(const std::string& path);

// One line a channel: name, mean, standard deviation.
std::string describe_statistics(const Statistics& statistics, const std::vector<std::string>& channel_names);

}  // namespace isobar
