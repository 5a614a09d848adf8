// Latitude weights: how much a row of the grid counts in a global mean. Their mean over the rows of the grid is 1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/fields/field_series.h"

namespace isobar {

// cos(latitude) / its mean, for true latitudes in degrees.
std::vector<double> latitude_weights(std::span<const double> latitudes);

// The NERSC tutorial's weights: rows at 90 - 180·j/(height - 1) degrees, with both poles, and its π of 3.1416.
std::vector<double> tutorial_latitude_weights(std::int64_t height);

// From the true latitudes if the files have them, else the tutorial's weights for the cropped height.
std::vector<double> latitude_weights(const FieldSeries& dataset);

// Those of a band of rows: a part of the whole grid's weights, so that sums over bands add up to the sum over the grid.
// Their mean is not 1.
std::vector<double> latitude_weights(const FieldSeries& dataset, RowBand rows);

}  // namespace isobar
