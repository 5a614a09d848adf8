// Latitude weights: how much a row of the grid counts in a global mean. All have mean 1 over the rows of the grid.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/era5/era5.h"

namespace isobar {

// cos(latitude) / its mean, from true latitudes in degrees.
std::vector<double> latitude_weights(std::span<const double> latitudes);

// The NERSC tutorial's: rows at 90 - 180·j/(height - 1) degrees, both poles included, with its π of 3.1416.
std::vector<double> tutorial_latitude_weights(std::int64_t height);

// From the true latitudes where the files have them, else the tutorial's with the cropped height.
std::vector<double> latitude_weights(const Era5Dataset& dataset);

// Those of a band of the grid's rows. They are the whole grid's, so that sums over bands add up to its sum, and do not
// have mean 1.
std::vector<double> latitude_weights(const Era5Dataset& dataset, RowBand rows);

}  // namespace isobar
