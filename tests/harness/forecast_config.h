// A run config of the task "forecast" for tests, and objects made from it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/train/config.h"
#include "models/forecast/recipe.h"
#include "models/vit/recipe.h"

namespace isobar::testing {

inline ForecastRecipe& forecast_of(RunConfig& config) {
  return dynamic_cast<ForecastRecipe&>(*config.recipe);
}

inline VitOptions& vit_of(RunConfig& config) {
  return dynamic_cast<VitRecipe&>(*config.network).vit;
}

// The config that a file with these entries gives; sizes that are null stay null.
inline RunConfig checked_config(const ConfigEntries& entries) {
  RunConfig config = read_config(entries);
  config.check();
  return config;
}

inline ConfigEntries entries_of(const std::vector<std::string>& assignments) {
  ConfigEntries entries;
  for (const std::string& assignment : assignments) set_from_assignment(entries, assignment);
  return entries;
}

inline Forecaster forecaster_of(RunConfig& config, FieldsInfo info, Device device) {
  return {forecast_of(config).forecaster_options(), config.compute, std::move(info), device};
}

}  // namespace isobar::testing
