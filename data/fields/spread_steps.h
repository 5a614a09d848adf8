// A few steps out of many, spread over time and over the hours of the day.
#pragma once

#include <cstdint>
#include <vector>

#include "data/fields/field_series.h"

namespace isobar {

// `count` of the steps [first, end), spread evenly. The time of day of each is a step later than that of the one
// before, so that no hour is preferred; steps_per_day: 0 if a day is no whole number of steps. All steps if there are
// no more than `count`.
std::vector<std::int64_t> spread_steps(std::int64_t first, std::int64_t end, std::int64_t count,
                                       std::int64_t steps_per_day);
// The number of steps in a day; 0 if it is no whole number, or unknown.
std::int64_t steps_per_day(const FieldSeries& series);

}  // namespace isobar
