// What weights say of the fields that they were trained on: settings beside the tensors of model.safetensors.
#pragma once

#include <cstdint>

#include "models/forecast/fields_info.h"
#include "models/forecast/options.h"
#include "models/task.h"

namespace isobar {

// isobar.grid: channels, means, stds, row_weights, latitudes, longitudes. isobar.units, a list, and isobar.lead_hours,
// from input to forecast, where they are known.
Settings settings_of(const FieldsInfo& info, std::int64_t dt);

// False for weights from elsewhere.
bool describes_fields(const Settings& settings);

// Checked as a data set is: Error naming the entry and what is wrong with it. options: of the weights' own config, with
// its sizes filled in.
FieldsInfo fields_info_from(const Settings& settings, const ForecastOptions& options, std::int64_t dt);

}  // namespace isobar
