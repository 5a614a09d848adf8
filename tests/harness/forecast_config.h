// A run config of the task "forecast" in tests, and what is made of it.
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

// As a config file with these entries would give it; sizes that are null stay so.
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

inline TrainerOptions trainer_options(const RunConfig& config) {
  return {config.batch, config.optimizer, config.schedule, config.compute, 1, config.loss_scale};
}

}  // namespace isobar::testing
