// The config of a run of any task: the tables of all components (engine/keys.h), read from the entries of config files
// and flags, and written as config.json.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/train/config_file.h"
#include "apps/train/loaders.h"
#include "apps/train/run_options.h"
#include "apps/train/trainer.h"
#include "apps/train/tutorial_keys.h"
#include "models/recipe.h"

namespace isobar {

// Tables point into the object: do not copy it, and move it only while no table exists.
struct RunConfig {
  // The defaults of this task and this network, or the task's own.
  explicit RunConfig(const std::string& task_name = recipe_list().front().name);
  RunConfig(const std::string& task_name, const std::string& model_name);

  // The same for a recipe that the caller has made, and the network that it was made with.
  RunConfig(std::string task_name, std::string model_name, std::shared_ptr<NetworkRecipe> its_network,
            std::unique_ptr<Recipe> own_recipe);

  std::string task, model;
  std::shared_ptr<NetworkRecipe> network;  // the recipe's network
  std::unique_ptr<Recipe> recipe;
  ComputeOptions compute;
  OptimizerOptions optimizer;
  LossScaleOptions loss_scale;
  ScheduleOptions schedule;
  BatchOptions batch;
  ReadingOptions reading;
  RunOptions run;
  TutorialKeys tutorial;
  KeyOrigins origins;
  // Keys of another task or network that a config sets, and that were left out because a later source (a config that
  // extends it, --set) chose this task and this network.
  std::vector<std::string> left_out;

  std::vector<KeyTable> tables();

  // Throws Error naming key and origin for a value out of range and for keys that contradict each other: every check
  // that is possible while some keys are left to the data. Recipe::open does the rest.
  void check_before_data();
  // All checks, for a config that leaves nothing to the data.
  void check();

  // Makes paths absolute, so that config.json repeats the run from any folder.
  void make_paths_absolute();
  // What a Trainer of this run needs. Without a data set: the schedule as the config has it, and rates by epoch change
  // with every iteration.
  TrainerOptions trainer_options() const;
  TrainerOptions trainer_options(std::int64_t iterations_per_epoch) const;
  // The keys that a resumed run may change.
  std::vector<std::string> keys_free_on_resume();

 private:
  void check_numbers() const;
};

// The values of the keys `task` and `model` in these entries, or their defaults.
std::string task_of(const ConfigEntries& entries);
std::string model_of(const ConfigEntries& entries);

// Throws Error naming key and origin for an unknown key (with the nearest known one) and for a wrong type; other checks
// come later. defaults: of the task and the network that the entries name.
RunConfig read_config(const ConfigEntries& entries);
RunConfig read_config(const ConfigEntries& entries, RunConfig defaults);

// What --data is given for. In training, sets beside it stay the config's; where weights are judged, it is all data.
enum class DataUse { training, judging };
// Sets the keys that --data stands for to absolute paths, and takes out those that it replaces (models/recipe.h).
void set_data(ConfigEntries& entries, const Recipe& recipe, const std::string& data, DataUse use);

// The sentence that names the keys that were left out; empty if there are none.
std::string about_left_out(const RunConfig& config);
// Prints it on stdout, in one line; prints nothing if there are none.
void print_left_out(const RunConfig& config);

// Every key in the order of the tables; read_config of the result gives the same config. found: values that the data
// determined (OpenedRecipe::found); they replace the declared values.
nlohmann::ordered_json to_json(RunConfig& config, const std::vector<FoundKey>& found = {});

// For the config of an earlier run: a key that it lacks gets the value of what isobar did before the key existed.
void add_older_values(ConfigEntries& entries, const std::string& origin);

// The key that an unknown name may mean: learning_rate -> lr; "" if none is near.
std::string suggested_key(const std::string& name, const std::vector<KeyTable>& tables);
// The same over the keys of all tasks.
std::string suggested_key(const std::string& name);

// The Markdown page docs/config.md: every key of every task with its default, its allowed values and its sentence.
std::string describe_keys();

}  // namespace isobar
