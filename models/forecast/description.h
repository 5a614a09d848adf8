// The description of the fields that weights were trained on: settings beside the tensors of model.safetensors.
#pragma once

#include <cstdint>
#include <optional>

#include "models/forecast/fields_info.h"
#include "models/forecast/options.h"
#include "models/recipe.h"
#include "models/task.h"

namespace isobar {

// Values of the constants that weights carry, together: a header of safetensors has at most 100 MB.
inline constexpr std::int64_t kMostCarried = std::int64_t{12} << 20;

// isobar.grid: channels, means, stds, row_weights, latitudes, longitudes, and extra_means, extra_stds, extra_names of
// computed planes and constants; change_stds if weights of channels ask for them. If known, also isobar.units, a list,
// and isobar.lead_hours, from input to forecast. If there are constants, of at most kMostCarried values together, also
// isobar.constants: {"z": {"units": "m2/s2", "values": TEXT}}, with [LAT, LON] fp32, little-endian, in base64.
Settings settings_of(const FieldsInfo& info, std::int64_t dt);

// The constants of weights with this description; none of those that are too large, and of older weights.
CarriedConstants carried_by(const FieldsInfo& info, const std::string& weights);
bool are_carried(const std::vector<ConstantField>& constants);

// None for weights without a description. Checked like a data set: Error naming the file, the entry and the problem.
// options, dt: of the model that the weights are for, with all sizes filled in.
std::optional<FieldsInfo> fields_info_of(const GivenWeights& weights, const ForecastOptions& options, std::int64_t dt);

}  // namespace isobar
