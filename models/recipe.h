// What a run trains, in three types, each made by the one before it. Who holds one can ask it for all that it offers:
//
//   Recipe        declared  options and their keys: what a config says of one kind of training, whatever the network
//   OpenedRecipe  opened    the data sets, and what was found in them
//   Task          made      a network with its weights, for these data (models/task.h)
//
// A new kind of data or of training is a new recipe, and one line in models/list.cc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/parallel.h"
#include "data/dataset.h"
#include "engine/keys.h"
#include "models/compute_options.h"
#include "models/network.h"
#include "models/prediction.h"
#include "models/task.h"

namespace isobar {

// Weights that a run starts or goes on from, or that are judged: the file, and the settings beside its tensors (none:
// weights from elsewhere).
struct GivenWeights {
  std::filesystem::path file;
  Settings settings;
};

// From this iteration on (counted from 0), training reads this view of the training samples: as many as
// OpenedRecipe::train() has, in the same order, with other tensors.
struct TrainingStage {
  std::int64_t from_iteration = 0;
  const Dataset* samples = nullptr;
  std::string sentence = {};  // for people: "forecasts of 2 steps"
};

// The stage of the iteration after `iterations` iterations. `stages` are in order, the first from 0.
const TrainingStage& stage_after(const std::vector<TrainingStage>& stages, std::int64_t iterations);

// How the data of a run are opened.
struct OpenRequest {
  // The run's own folder for what is computed of the data, which opening leaves as it is; empty: nothing will be kept.
  std::filesystem::path kept = {};
  bool resumed = false;       // then it may hold that already
  std::string findings = {};  // OpenedRecipe::findings() of another process; empty: this one looks for itself
  OpeningProcess process = {};
  std::int64_t global_batch_size = 1;  // samples of an update
  // Updates of the run; none: the config counts epochs, and the data say how many updates these are.
  std::optional<std::int64_t> iterations = {};
};

// A recipe whose data are open. It keeps what it needs of the recipe, and may outlive it.
class OpenedRecipe : public TaskSource {  // is not copied: samples refer to the files
 public:
  virtual const Dataset& train() const = 0;  // of stages, that whose samples hold most
  // How training changes what it reads. By default it never does.
  virtual std::vector<TrainingStage> stages() const { return {{0, &train()}}; }
  virtual const Dataset& valid() const = 0;
  // What validations judge besides, by Task::also_metrics(), with no say in which weights are the best; null: nothing.
  virtual const Dataset* also_valid() const { return nullptr; }
  virtual const Dataset* test() const = 0;  // scored once, at the end; null: the config names none

  // What opening has filled, chosen and made, for people, one sentence each.
  virtual std::vector<std::string> sentences() const { return {}; }
  // Keys that stand in config.json with what was found, so that it repeats the run: names of channels, paths of
  // statistics. The recipe keeps what was declared.
  virtual std::vector<FoundKey> found() const { return {}; }
  // Writes to `kept` what was computed of the data, if anything.
  virtual void keep(const std::filesystem::path& kept) const { static_cast<void>(kept); }
  // What this process has found out by looking at the data, packed for others: they open no file that it speaks of, and
  // compute nothing from the data. Empty where every process looks for itself.
  virtual std::string findings() const { return {}; }

  // What people should know of the samples, one sentence each: doubts for stderr, and the rest for the log.
  virtual std::vector<std::string> warnings() const { return {}; }
  virtual std::vector<std::string> notes() const { return {}; }

  std::vector<TensorSpec> sample_layout(const std::optional<RowBand>& rows) const override {
    return rows ? train().band(*rows)->layout() : train().layout();
  }

  // Throw Error where the data are not what the weights were trained on: in kind (check_start), and in every respect
  // that a run which goes on has to keep (check_resume).
  virtual void check_start(const GivenWeights& weights) const = 0;
  virtual void check_resume(const GivenWeights& weights) const = 0;

  // What the fields at the network's ports are; empty where the task has no names for them.
  virtual FieldsMeaning meaning() const { return {}; }

  // TaskSource::make_task for weights that are to be read into it, of a run that goes on: the data are normalised as
  // these weights were trained, whatever the data's own statistics say.
  virtual std::unique_ptr<Task> make_trained_task(const GivenWeights& weights, const ComputeOptions& compute,
                                                  Device device,
                                                  const Parallel& parallel = Parallel::alone()) const = 0;
};

// One set of samples, opened to judge weights by it.
class OpenedSplit {
 public:
  OpenedSplit() = default;
  virtual ~OpenedSplit() = default;
  OpenedSplit(const OpenedSplit&) = delete;  // samples refer to the files
  OpenedSplit& operator=(const OpenedSplit&) = delete;

  virtual const Dataset& samples() const = 0;
  // For people, in lines: which part of the data these samples are, where only the config says it, and how they differ
  // from those that a run judges.
  virtual std::string note() const { return {}; }
  // The task for the weights that the set was opened for, which are to be read into it.
  virtual std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device) const = 0;
};

class Recipe {
 public:
  virtual ~Recipe() = default;

  // The tables of this recipe's options, bound to this object; the network's are its own.
  virtual std::vector<KeyTable> keys() = 0;

  // The keys that --data FOLDER stands for, and their paths. Throws Error where the folder holds no such data.
  virtual std::vector<std::pair<std::string, std::filesystem::path>> paths_in(
      const std::filesystem::path& folder) const = 0;
  // The keys that go back to their defaults where --data has set `key`, one of paths_in(): they name data too, and
  // would be read instead, or beside it. judged: it is given to judge weights by, not to train on.
  virtual std::vector<std::string> keys_replaced_by(const std::string& key, bool judged) const {
    static_cast<void>(key), static_cast<void>(judged);
    return {};
  }

  // Opens the data. Before, it gives the keys that are null and left to the data (its own and the network's) their
  // values, with "the data" as their origin, and then checks all of them; it changes no other option, and nothing else
  // ever does. Throws Error for data that do not fit the config.
  virtual std::unique_ptr<OpenedRecipe> open(KeyOrigins& origins, const OpenRequest& request) = 0;

  // Gives keys that are null and left to the data their values as open() does, as far as other keys alone decide them:
  // for the task on shapes. By default none are.
  virtual void fill_without_data(KeyOrigins& origins) { static_cast<void>(origins); }

  // Opens one set alone, to judge weights by it: nothing is computed of the data, which are normalised as these weights
  // were trained. Every key has a value. Throws Error where the config names no such set, and where it is not what the
  // weights were trained for.
  virtual std::unique_ptr<OpenedSplit> open_split(DataSplit split, const GivenWeights& weights) const = 0;

  // Opens what these weights are to be applied to. Every key has a value. Throws Error if it is not what the weights
  // were trained for, and for a task whose predictions are not written in this way (the default): with the command that
  // fits, if there is one.
  virtual std::unique_ptr<OpenedPrediction> open_prediction(const PredictionRequest& request,
                                                            const GivenWeights& weights) const;

  // What the fields at the ports of these weights' network are, if this is their recipe; empty where the weights or the
  // task do not say. Every key has a value.
  virtual FieldsMeaning meaning_of(const GivenWeights& weights) const {
    static_cast<void>(weights);
    return {};
  }

  // The task of these sizes without data: to be run on shapes, on the device meta. Throws Error where sizes are left to
  // the data.
  virtual std::unique_ptr<TaskSource> on_shapes() const = 0;
};

struct RecipeEntry {
  const char* name;  // the value of the config key `task`
  std::unique_ptr<Recipe> (*make)(std::shared_ptr<NetworkRecipe> network);
  const char* network = "vit";  // the default of the key `model` with this task
};

// Every recipe; the first is the default.
const std::vector<RecipeEntry>& recipe_list();

// The network that a task has where the config names none. Throws Error, with the names that there are, for an unknown
// task.
const char* network_of_task(const std::string& task);

// The task of this name, to be done by that network. Throws Error, with the names that there are, for an unknown one.
std::unique_ptr<Recipe> make_recipe(const std::string& name,
                                    std::shared_ptr<NetworkRecipe> network = make_network_recipe());

}  // namespace isobar
