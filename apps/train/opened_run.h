// A run whose data are open and compared with its first weights.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "apps/train/config.h"
#include "apps/train/found_run.h"
#include "apps/train/model_file.h"
#include "apps/train/run.h"
#include "apps/train/trainer.h"
#include "comm/communicator.h"
#include "models/partial_start.h"
#include "models/recipe.h"

namespace isobar {

// Weights that the run continues from (trained) or starts from: as they are (init), or what fits of them (partial).
struct FirstWeights {
  std::optional<GivenWeights> trained, init;
  std::optional<ModelDescription> partial;
};

// init: a file; empty: weights are drawn at random. A run that goes on takes nothing partially.
FirstWeights first_weights(const FoundRun& found, const std::filesystem::path& init, bool is_partial);

// What fits of the weights that the run starts from; none unless it starts so. Error as PartialStart.
std::optional<PartialStart> partial_start(const FirstWeights& weights, const RunConfig& config,
                                          const OpenedRecipe& data);

// Opens the data on every process, compares them with the weights, and prints what opening has filled and made. Only
// the first process examines the data; the others use its findings.
std::unique_ptr<OpenedRecipe> open_data_of_run(RunConfig& config, const OpenRequest& request,
                                               const FirstWeights& weights, const Communicator& processes);

// The config as config.json has it: keys that were left to the data have the values that the data gave.
nlohmann::ordered_json config_of_run(RunConfig& config, const OpenedRecipe& data, const ScheduleOptions& schedule);

// A line for the log where the run takes more training samples than are put in order (Dataset::has_own_order), so that
// it begins again with the first one; empty: it does not.
std::string about_repeated_samples(const RunConfig& config, const OpenedRecipe& data, const ScheduleOptions& schedule);

// What all ranks of this process share. It is only read, except the folder, which the first rank uses.
struct OpenedRun {
  RunConfig& config;
  const OpenedRecipe& data;
  RunFolder* folder;  // null in all processes but the first
  FoundRun found;
  std::optional<GivenWeights> trained;  // weights that the run continues from
  std::filesystem::path init;           // weights to start from as they are; empty: none
  std::filesystem::path init_moments;   // of Adam, to start from; empty: they begin at 0
  std::optional<PartialStart> partial;  // what fits of weights to start from
  RunSetup setup;
  Device device;
};

TrainerOptions trainer_options(const OpenedRun& run);

}  // namespace isobar
