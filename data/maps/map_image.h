// Maps of fields as pictures: the tutorial's two panels for TensorBoard, and target, forecast and error for a run's
// PNG.
//
// A field is one channel, fp32 [height, width] row-major, in whatever unit the reader is to see. Its first row is drawn
// at the top, unless latitudes are given that grow downwards: north is up. A cell that is smaller than a pixel is
// averaged with its neighbours, a larger one stays visible as it is. What is not finite is drawn grey.
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
  std::span<const float> lat = {};             // degrees, one a row; empty: no graticule
  std::span<const float> lon = {};             // degrees, one a column; empty: no graticule
};

// Target, forecast and error (forecast - target) side by side, each with a colour bar and its extremes, with a
// graticule where latitudes and longitudes are known. The target's range sets the colours (turbo) of target and
// forecast. The colours of the error are symmetric about zero and reach the magnitude that 99 % of the cells stay
// below.
Image target_forecast_error(const Field& target, const Field& forecast, const MapLabels& labels);

}  // namespace isobar
