// Checks by their values that fields and statistics are of the same kind, even if no units are given.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "data/fields/statistics.h"

namespace isobar {

// Throws Error, naming file, step and channel, if a (cropped) field of step `step` is further from the statistics than
// any weather. Its values are on average
//   - more than 20 standard deviations from the mean, or
//   - more than three quarters of the way to zero, if the mean is more than 8 standard deviations from zero: a
//     temperature in degrees Celsius where kelvin are expected, a pressure in hPa.
// Only the first bound applies to precipitation and wind, whose mean is near zero.
void check_first_step(const FieldSeries& dataset, std::int64_t step, const std::vector<std::string>& channel_names,
                      const Statistics& statistics);

}  // namespace isobar
