// The description of the fields that weights were trained on: settings beside the tensors of model.safetensors.
#pragma once

#include <cstdint>
#include <optional>

#include "models/forecast/fields_info.h"
#include "models/forecast/options.h"
#include "models/recipe.h"
#include "models/task.h"

namespace isobar {

// isobar.grid: channels, means, stds, row_weights, latitudes, longitudes, and extra_means, extra_stds of computed
// planes and constants. If known, also isobar.units, a list, and isobar.lead_hours, from input to forecast.
Settings settings_of(const FieldsInfo& info, std::int64_t dt);

// None for weights without a description. Checked like a data set: Error naming the file, the entry and the problem.
// options, dt: of the model that the weights are for, with all sizes filled in.
std::optional<FieldsInfo> fields_info_of(const GivenWeights& weights, const ForecastOptions& options, std::int64_t dt);

}  // namespace isobar
