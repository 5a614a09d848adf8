// A range of steps on the command line: two step numbers, or two dates.
#pragma once

#include <string>
#include <vector>

#include "engine/keys.h"

namespace isobar {

// ends: two. Steps if both are whole numbers; else dates, which the data set checks. Error naming the flag for a number
// and a date.
RangeValue range_of(const std::string& flag, const std::vector<std::string>& ends);

}  // namespace isobar
