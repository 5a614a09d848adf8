// What weights say of the fields that they were trained on: settings beside the tensors of model.safetensors.
#pragma once

#include <cstdint>
#include <optional>

#include "models/forecast/fields_info.h"
#include "models/forecast/options.h"
#include "models/recipe.h"
#include "models/task.h"

namespace isobar {

// isobar.grid: channels, means, stds, row_weights, latitudes, longitudes. isobar.units, a list, and isobar.lead_hours,
// from input to forecast, where they are known.
Settings settings_of(const FieldsInfo& info, std::int64_t dt);

// None for weights from elsewhere. Checked as a data set is: Error naming the file, the entry and what is wrong with
// it. options, dt: of the model that the weights are for, with its sizes filled in.
std::optional<FieldsInfo> fields_info_of(const GivenWeights& weights, const ForecastOptions& options, std::int64_t dt);

}  // namespace isobar
