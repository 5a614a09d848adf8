// Maps of fields as pictures: the tutorial's two panels for TensorBoard, and target, forecast and error for a run's
// PNG.
//
// A field is one channel, fp32 [height, width] row-major, in the unit to display. Its first row is drawn at the top,
// except if the given latitudes increase downwards: north is up. Cells smaller than a pixel are averaged; larger cells
// are drawn as blocks. Values that are not finite are grey.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "data/maps/png.h"

namespace isobar {

struct Field {
  int height = 0, width = 0;
  std::span<const float> values;  // [height, width]
};

// The tutorial's picture: 1200 x 600, "ERA5 target" | "ViT prediction", colour map turbo. The target's range sets the
// colours of both panels, so that they can be compared with each other and over the course of training.
Image target_and_prediction(const Field& target, const Field& prediction);

struct MapLabels {
  std::string variable = {};                   // "t2m"
  std::string unit = {};                       // "K"; empty: not shown
  std::string lead_time = {};                  // "+6 h"; empty: not shown
  std::string valid_time = {};                 // "2013-01-01 06:00", of the target; empty: not shown
  std::optional<std::int64_t> iteration = {};  // of the weights; none: not shown
  std::span<const float> lat = {};             // [height] degrees; empty: no graticule
  std::span<const float> lon = {};             // [width] degrees; empty: no graticule
};

// Target, forecast and error (forecast - target) side by side, each with a colour bar and its min and max, the error
// with its root mean square too, over the values that are finite; and with a graticule if latitudes and longitudes are
// known. The target's range sets the colours (turbo) of target and forecast.
// The colours of the error are symmetric about zero; they reach to the magnitude that 99 % of the cells stay below.
Image target_forecast_error(const Field& target, const Field& forecast, const MapLabels& labels);

}  // namespace isobar
