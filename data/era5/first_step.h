// Whether fields and statistics are of one kind, judged by the numbers: a first line of defence where nobody says
// units.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/era5/era5.h"
#include "data/era5/statistics.h"

namespace isobar {

// Throws Error, naming file, step and channel, where a (cropped) field of step `step` lies further from the statistics
// than weather ever does: its values are on average
//   - more than 20 standard deviations from the mean, or
//   - more than three quarters of the way to zero, where the mean is more than 8 standard deviations from zero: a
//     temperature in degrees Celsius where kelvin are expected, a pressure in hPa.
// Precipitation and wind, whose mean is near zero, have the first bound only.
void check_first_step(const Era5Dataset& dataset, std::int64_t step, const std::vector<std::string>& channel_names,
                      const Statistics& statistics);

}  // namespace isobar
