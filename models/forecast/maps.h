// The picture of a forecast during training.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "models/forecast/fields_info.h"
#include "models/task.h"

namespace isobar {

// Texts of the pictures of a sample.
struct MapCaption {
  std::string lead_time;   // "+6 h"; empty: not shown
  std::string valid_time;  // of the target, "2013-01-01 06:00"; empty: not shown
  std::int64_t iteration = 0;
};

// Of one channel. target: the fields of the first sample, [V, height, width], in the data's units; forecast:
// [outputs, height, width], the same.
Picture draw_forecast(std::span<const float> target, std::span<const float> forecast, const FieldsInfo& info,
                      std::size_t channel, std::int64_t height, std::int64_t width, const MapCaption& caption);

}  // namespace isobar
