// Sunlight on the points of a grid, without an atmosphere. All in fp64; no trigonometry for single points, only for
// rows and columns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"

namespace isobar {

// The rows and columns of a grid, degrees. Latitudes lie within [-90, 90], longitudes within [-180, 360].
struct GridPoints {
  std::vector<double> latitudes = {}, longitudes = {};
};

// max(0, cos z) at an instant, with z the sun's zenith angle: cos z = sin φ sin δ + cos φ cos δ cos h
// (data/fields/sun.h). out: [rows.count, longitudes], for rows of the grid. hours: since 1970-01-01T00 UTC.
void cos_zenith(const GridPoints& grid, double hours, RowBand rows, std::span<double> out);

// The mean of max(0, cos z) / r² over (hours - span, hours]; the solar constant times this is the mean flux through a
// horizontal plane at the top of the atmosphere. span: hours, positive. out: as above.
//
// The interval is divided into equal pieces of at most an hour. Each has δ, E and r of its middle, and the mean over a
// piece from the hour angle h₁ to h₂ is exact. With A = sin φ sin δ, B = cos φ cos δ and the hour angle of sunset
// H = acos(-A/B), which is 0 in the polar night and π in the polar day, the light since noon is
//
//   F(h) = A h' + B sin h',  h' = h within [-H, H], for h in [-π, π]
//   mean = (F(h₂) - F(h₁) + (2 F(H) if midnight lies between h₁ and h₂)) / (r² (h₂ - h₁))
void mean_insolation(const GridPoints& grid, double hours, double span, RowBand rows, std::span<double> out);

}  // namespace isobar
