// The picture of a forecast while training.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "models/forecast/fields_info.h"
#include "models/task.h"

namespace isobar {

// Of the third variable (the tutorial's choice: t2m), or the last where there are fewer. target: the first sample's
// fields [C, H, W] in the data's units; forecast [outputs, H, W], the same.
Picture draw_forecast(std::span<const float> target, std::span<const float> forecast, const FieldsInfo& info,
                      std::int64_t outputs, std::int64_t height, std::int64_t width, const std::string& lead_time);

}  // namespace isobar
