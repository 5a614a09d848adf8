// A recipe: all that a config says of one kind of training. It declares the config keys, opens the data and makes the
// task. A new model or a new kind of data is a new recipe, and one line in models/list.cc.
//
// Order of use: keys() are read from a config, complete() fills what was left to the data, check_keys, open(),
// make_task().
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/parallel.h"
#include "data/dataset.h"
#include "engine/keys.h"
#include "models/compute_options.h"
#include "models/holding.h"
#include "models/task.h"

namespace isobar {

// Weights that a run starts or goes on from: the file, and the settings beside its tensors (none: weights from
// elsewhere).
struct GivenWeights {
  std::filesystem::path file;
  Settings settings;
};

class Recipe {
 public:
  virtual ~Recipe() = default;

  // The tables of this recipe's options, bound to this object.
  virtual std::vector<KeyTable> keys() = 0;

  // The keys that --data FOLDER stands for, and their paths. Throws Error where the folder holds no such data.
  virtual std::vector<std::pair<std::string, std::filesystem::path>> paths_in(
      const std::filesystem::path& folder) const = 0;

  // Fills the keys that are null and left to the data. Returns what it chose, one sentence each.
  virtual std::vector<std::string> complete(KeyOrigins& origins) = 0;

  // Opens both data sets. kept: the run's own folder for what is computed of the data; with `resumed` it may hold that
  // already. Changes nothing there. Returns what people should know, one sentence each. Throws Error for data that do
  // not fit the config.
  virtual std::vector<std::string> open(const std::filesystem::path& kept, bool resumed) = 0;
  // Writes to `kept` what open() computed, if anything.
  virtual void keep(const std::filesystem::path& kept) const { static_cast<void>(kept); }

  // What this process has found out by looking at the data, in complete() and open(), packed for others; empty where
  // every process looks for itself.
  virtual std::string findings() const { return {}; }
  // What another process has packed. complete() and open() go by it then: they open no file that it speaks of, and
  // compute nothing from the data.
  virtual void adopt(const std::string& findings) { static_cast<void>(findings); }

  virtual const Dataset& train() const = 0;
  virtual const Dataset& valid() const = 0;
  // What people should know of the samples, one sentence each, for the log.
  virtual std::vector<std::string> warnings() const { return {}; }  // for stderr, once the data are open
  virtual std::vector<std::string> notes() const { return {}; }

  // Throw Error where the opened data are not what the weights were trained on: in kind (check_start), and in every
  // respect that a run which goes on has to keep (check_resume).
  virtual void check_start(const GivenWeights& weights) const = 0;
  virtual void check_resume(const GivenWeights& weights) const = 0;

  // What the rank that stands in these groups holds of the model; nothing is computed. Throws Error where sizes are
  // left to data that are not opened yet, and where the model cannot be split in that way.
  virtual Holding holding(const ComputeOptions& compute, const Parallel& parallel) const = 0;

  // The task for the opened data, with initial weights: this rank's part of it. `parallel` must outlive it. Throws
  // Error where the model cannot be split in that way.
  virtual std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                          const Parallel& parallel = Parallel::alone()) const = 0;
  // The same for weights that are to be read into it: the data are normalised as these weights were trained, whatever
  // the data's own statistics say.
  virtual std::unique_ptr<Task> make_trained_task(const GivenWeights& weights, const ComputeOptions& compute,
                                                  Device device) const = 0;
};

struct RecipeEntry {
  const char* name;  // the value of the config key `task`
  std::unique_ptr<Recipe> (*make)();
};

// Every recipe; the first is the default.
const std::vector<RecipeEntry>& recipe_list();

// Throws Error, with the names that there are, for an unknown one.
std::unique_ptr<Recipe> make_recipe(const std::string& name);

}  // namespace isobar
