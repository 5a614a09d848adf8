// The text that the subcommands of `isobar data` print.
#pragma once

#include <string>
#include <vector>

#include "data/fields/statistics.h"

namespace isobar {

// A few lines about the data at `path`: a folder in the tutorial's layout (train, valid, test, stats), a folder of .h5
// files with or without statistics, or one file. Files and statistics are opened with all checks of the data set.
// all_steps: reads every value of the fields; Error naming file, step and channel if there is a hole.
std::string describe_data(const std::string& path, bool all_steps = false);

// One line per channel: name, mean, standard deviation.
std::string describe_statistics(const Statistics& statistics, const std::vector<std::string>& channel_names);

}  // namespace isobar
