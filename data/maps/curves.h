// Curves over an axis: scores by lead time, spectra by wavenumber.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "data/maps/png.h"

namespace isobar {

// Points that are not finite are left out, and end a line.
struct Curve {
  std::string name;  // in the legend
  std::vector<double> x, y;
  Rgb color;
};

struct CurveLabels {
  std::string title, x, y;
  bool from_zero = false;  // the y axis begins at 0
};

// The colours of curves that are compared, in the order of the legend.
Rgb curve_color(std::size_t number);

// A picture of 900 x 560 pixels.
Image draw_curves(const CurveLabels& labels, std::span<const Curve> curves);

}  // namespace isobar
