// Longitudes of a grid's columns.
#pragma once

#include <span>

namespace isobar {

// Whether the columns are evenly spaced round the whole globe, so that the last one and the first one are neighbours:
// 0, 2.5, ..., 357.5 degrees, from any start and in either direction. False for none (the longitudes are unknown), for
// a part of the globe, and where the first column comes again at the end (0, ..., 360). Tolerance of a step: 1 % of it,
// or what degrees that are printed with two digits need: 0.01 degrees, but at most 10 % of a step.
bool go_round(std::span<const double> longitudes);  // degrees

}  // namespace isobar
