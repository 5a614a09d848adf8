// A run's config, whatever the task: the tables of every component together (engine/keys.h), read from the entries of
// config files and flags, and written as config.json.
#pragma once

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

// Tables point into the object: it is not copied, and may be moved only while nobody holds a table.
struct RunConfig {
  // The defaults of that task and that network.
  explicit RunConfig(const std::string& task_name = recipe_list().front().name,
                     const std::string& model_name = network_list().front().name);

  // The same of a recipe that the caller has made himself, and the network that it was made with.
  RunConfig(std::string task_name, std::string model_name, std::shared_ptr<NetworkRecipe> its_network,
            std::unique_ptr<Recipe> own_recipe);

  std::string task, model;
  std::shared_ptr<NetworkRecipe> network;  // the recipe's
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

  std::vector<KeyTable> tables();

  // Throws Error naming key and origin for a value out of range, and for keys of the run that contradict each other:
  // all that can be checked while keys are left to the data. Recipe::open checks the rest.
  void check_before_data();
  // Checks all of it, of a config that leaves nothing to data.
  void check();

  // Paths become absolute, so that config.json repeats the run from any folder.
  void make_paths_absolute();
  // The keys that a resumed run may change.
  std::vector<std::string> keys_free_on_resume();

 private:
  void check_numbers() const;
};

// The values of the keys `task` and `model` among these, or their defaults.
std::string task_of(const ConfigEntries& entries);
std::string model_of(const ConfigEntries& entries);

// Throws Error naming key and origin for unknown keys, telling the nearest, and wrong types; nothing else is checked
// yet. defaults: of the task and the network that the entries name.
RunConfig read_config(const ConfigEntries& entries);
RunConfig read_config(const ConfigEntries& entries, RunConfig defaults);

// Every key in the order of the tables; read_config of it gives the same config. found: what the run's data say in the
// place of what is declared (OpenedRecipe::found).
nlohmann::ordered_json to_json(RunConfig& config, const std::vector<FoundKey>& found = {});

// Gives keys that the config of an earlier run does not have what runs did before there were these keys.
void add_older_values(ConfigEntries& entries, const std::string& origin);

// The key that a name which is none may mean: lr for learning_rate; "" where none is near.
std::string suggested_key(const std::string& name, const std::vector<KeyTable>& tables);
// Among the keys of all tasks.
std::string suggested_key(const std::string& name);

// A page of Markdown, docs/config.md: every key of every task with its default, what it takes, and its sentence.
std::string describe_keys();

}  // namespace isobar
