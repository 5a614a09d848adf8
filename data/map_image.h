// Maps of fields as pictures: the tutorial's two panels for TensorBoard, and target, forecast and error for a run's
// PNG.
//
// A field is one channel, [H, W] row-major, first row northernmost, fp32, in whatever unit the caller wants to see.
// Rows and columns are stretched to the panel (nearest grid point: every cell stays visible). NaN is drawn grey.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/png.h"

namespace isobar {

struct Field {
  int height = 0, width = 0;
  std::span<const float> values;  // [height, width]
};

// The tutorial's "Visualization" image: 1200 x 600, "ERA5 target" | "ViT prediction", colour map turbo. Both panels
// share one colour scale, the target's and the prediction's common range, so that they can be compared.
Image target_and_prediction(const Field& target, const Field& prediction);

struct MapTitle {
  std::string variable;   // "t2m"
  std::string unit;       // "K"; may be empty
  std::string lead_time;  // "+6 h"
};

// Three panels with colour bars, extremes, titles and, where lat and lon are given (degrees, as many as rows and
// columns), a graticule with labels. Target and forecast share one scale (turbo); the error forecast - target has a
// diverging one, symmetric about zero.
Image target_forecast_error(const Field& target, const Field& forecast, const MapTitle& title,
                            std::span<const float> lat = {}, std::span<const float> lon = {});

}  // namespace isobar
