// Latitude weights: how much a row of the grid counts in a global mean. Their mean over the rows of the grid is 1.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "engine/keys.h"

namespace isobar {

// cos: of the row's latitude. cells: the area of the row's cells. tutorial: cos of the NERSC tutorial's latitudes,
// whatever the true ones are.
enum class LatitudeWeights : std::uint8_t { cos, cells, tutorial };

template <>
struct EnumNames<LatitudeWeights> {
  static constexpr std::array names{"cos", "cells", "tutorial"};
};

// cos(latitude) / its mean, for true latitudes in degrees.
std::vector<double> latitude_weights(std::span<const double> latitudes);

// sin(upper border) - sin(lower border) of each row, over its mean. Borders are midway between rows; at the ends half a
// spacing beyond the last row, but not beyond a pole. For a global grid this is WeatherBench 2's weight; for a region
// WeatherBench puts the outer borders at the poles, so that the end rows have the weight of all that is outside. Error
// for latitudes that neither rise nor fall throughout.
std::vector<double> cell_weights(std::span<const double> latitudes);

// The NERSC tutorial's weights: rows at 90 - 180·j/(height - 1) degrees, with both poles, and its π of 3.1416.
std::vector<double> tutorial_latitude_weights(std::int64_t height);

// Of rows at these latitudes; empty: unknown. cos: the tutorial's weights if the latitudes are unknown. Error naming
// `where` for cells if they are.
std::vector<double> latitude_weights(LatitudeWeights kind, std::span<const double> latitudes, std::int64_t height,
                                     const std::string& where);

// Those of the rows of a data set, after the crop.
std::vector<double> latitude_weights(const FieldSeries& dataset, LatitudeWeights kind = LatitudeWeights::cos);

// Those of a band of rows: a part of the whole grid's weights, so that sums over bands add up to the sum over the grid.
// Their mean is not 1.
std::vector<double> latitude_weights(const FieldSeries& dataset, RowBand rows);

}  // namespace isobar
