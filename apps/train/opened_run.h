// A run whose data are open, and compared with the weights that it begins with.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "apps/train/config.h"
#include "apps/train/found_run.h"
#include "apps/train/run.h"
#include "comm/communicator.h"
#include "models/recipe.h"

namespace isobar {

// Weights that the run goes on from, or starts from.
struct FirstWeights {
  std::optional<GivenWeights> trained, init;
};

// init: a file; empty: weights are drawn.
FirstWeights first_weights(const FoundRun& found, const std::filesystem::path& init);

// Opens the data on every process and compares them with the weights; says on stdout what opening has filled and made.
// The first process looks at the data, and the others go by what it has found.
std::unique_ptr<OpenedRecipe> open_data_of_run(RunConfig& config, const OpenRequest& request,
                                               const FirstWeights& weights, const Communicator& processes);

// The config as config.json has it: with what the data say in the place of what is declared.
nlohmann::ordered_json config_of_run(RunConfig& config, const OpenedRecipe& data, const ScheduleOptions& schedule);

// What all ranks of this process share: all of it is only read, but for the folder, which is the first rank's.
struct OpenedRun {
  RunConfig& config;
  const OpenedRecipe& data;
  ScheduleOptions schedule;  // of so many updates an epoch
  RunFolder* folder;         // null in all processes but the first
  FoundRun found;
  std::optional<GivenWeights> trained;  // weights that the run goes on from
  std::filesystem::path init;           // weights to start from; empty: drawn
  RunSetup setup;
  Device device;
};

}  // namespace isobar
