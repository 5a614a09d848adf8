// A task: a network, what it is trained for, and how it is judged. The training loop (apps/train/run.h) knows no more
// of a model than this.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/parallel.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/maps/png.h"
#include "engine/files/safetensors.h"
#include "engine/parameters.h"
#include "models/compute_options.h"
#include "models/pass.h"

namespace isobar {

// A number of a report, or one of several under one name: {"rmse", "t2m", 0.47} becomes "rmse": {"t2m": 0.47} in JSON.
struct Figure {
  std::string name;
  std::string part;  // empty: the name's only number
  double value = 0;
};

// Curves of TensorBoard that belong together: on its page "Custom Scalars".
struct Chart {
  std::string group, title;
  std::vector<std::string> tags;
};

// "val_rmse", "test_rmse", "train_rmse": what summaries call a figure of this set.
inline std::string figure_of(DataSplit split, const std::string& name) {
  return (split == DataSplit::valid ? "val_" : split == DataSplit::test ? "test_" : "train_") + name;
}

// "validation set", for people.
inline std::string name_of_set(DataSplit split) {
  return split == DataSplit::valid ? "validation set" : split == DataSplit::test ? "test set" : "training set";
}

// What judging a set has to say. The loss is told by the loop itself.
struct Report {
  std::vector<Figure> line;                             // in metrics.jsonl
  std::vector<Figure> summary;                          // in summary.json, under these very names
  std::vector<std::pair<std::string, double>> scalars;  // TensorBoard: tag and value
  std::vector<Chart> charts = {};                       // of some of these; the same at every validation
  std::string sentence;                                 // one line of the log, at every validation
  std::string table;                                    // lines of the log, at the end of the run
};

// Whose words the log of a run has: those of the program that did this task before, for people and scripts who know it.
enum class LogStyle : std::uint8_t {
  weather,  // NERSC's tutorial on training at scale
  course    // NERSC's course on training with several GPUs
};

// The judgement of one data set: sums that add up over its batches (and over ranks).
class Metrics {
 public:
  virtual ~Metrics() = default;

  // A pass over the data set begins: sums of an earlier one are forgotten. What no update changes (the score of a
  // forecast that needs no model) may be kept from a pass that was ended.
  virtual void begin() = 0;
  // The pass has seen every sample.
  virtual void end() {}

  // What this pass has added up, counts included: ranks that see different samples add theirs up before end().
  virtual std::vector<std::span<double>> sums() = 0;
  virtual double loss() const = 0;  // the mean over the samples; the lowest decides which weights are the best
  // What the samples of a pass lack, so that loss or figures are the mean of nothing: "all labels are ignored"; empty:
  // nothing.
  virtual std::string lack() const { return {}; }
  virtual Report report(DataSplit split) const = 0;  // they are of this set
};

// A picture of a validation, shown in TensorBoard and kept as a file.
struct Picture {
  std::string tag;  // in TensorBoard
  Image board;
  std::string file;  // images/FILE_ITERATION.png
  Image image;
};

// What is kept beside the weights, by name: with the config, enough to build the task again.
using Settings = std::map<std::string, std::string>;

class StagedTask;  // models/staged_task.h

class Task {
 public:
  virtual ~Task() = default;

  virtual std::string network() const = 0;  // for people: "ViT"
  virtual Parameters& parameters() = 0;
  virtual const Parameters& parameters() const = 0;

  // A loss is a sum and a weight: the loss of a global batch is the sum over all that counts in it, divided by the
  // weight of all of it, however it is cut into parts and dealt over ranks. Both are given of one batch:
  //
  // [1], the sum divided by weight(batch), a mean; recorded on the active tape, if there is one. Where the weight is 0
  // nobody reads it, and it gives gradients of 0 for an upstream of 0.
  virtual Tensor loss(const Batch& batch, const Pass& pass) const = 0;
  // What the mean is over: the samples of the batch, or the targets in it that count. Told by the batch alone, before
  // the pass, and alike by ranks that share samples, which all call it.
  virtual double weight(const Batch& batch) const { return static_cast<double>(batch_size(batch)); }
  // Whether weight() is the number of samples. Then it is known everywhere without a look at other parts and ranks.
  virtual bool counts_samples() const { return true; }
  // If weight() is the number of samples that count: why others do not, for people. Empty: nobody is told of them.
  virtual std::string describe_uncounted() const { return {}; }

  // The same in the parts that a pipeline of ranks needs; null: the task cannot be cut.
  virtual const StagedTask* staged() const { return nullptr; }

  virtual std::unique_ptr<Metrics> metrics() const = 0;
  // Of OpenedRecipe::also_valid(), if there is such a set.
  virtual std::unique_ptr<Metrics> also_metrics() const { return nullptr; }
  // Adds the batch to metrics that this task made. Nothing is recorded.
  virtual void score(const Batch& batch, Metrics& metrics) const = 0;

  // The rows of every picture that this rank's batches hold, where ranks hold bands of them; none: all rows.
  virtual std::optional<RowBand> band() const { return std::nullopt; }

  // Pictures of the first picture_samples() samples of the validation set. All ranks that share a batch call it; the
  // first of them shows what it returns. iteration: of the weights, for the pictures to say.
  virtual std::int64_t picture_samples() const { return 1; }
  virtual std::vector<Picture> pictures(const Batch& batch, std::int64_t iteration) const = 0;

  virtual Settings settings() const = 0;

  // The tensors of a file or folder of weights, under the names of this task's parameters. Error where they cannot be
  // read, and for weights of a network that computes something else.
  virtual std::unique_ptr<TensorReader> open_weights(const std::filesystem::path& path) const {
    return std::make_unique<SafetensorsReader>(path);
  }

  virtual LogStyle log_style() const { return LogStyle::weather; }

  Device device() const { return parameters().device(); }
};

// Makes a task, on any device, of data that are open or of sizes alone.
class TaskSource {
 public:
  TaskSource() = default;
  virtual ~TaskSource() = default;
  TaskSource(const TaskSource&) = delete;
  TaskSource& operator=(const TaskSource&) = delete;

  // With initial weights: this rank's part of it. `parallel` must outlive it. Throws Error where the model cannot be
  // split in that way. On the device meta it costs next to nothing.
  virtual std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                          const Parallel& parallel = Parallel::alone()) const = 0;
  // The tensors of a training sample; rows: of its pictures, as a rank reads them that has a band (Task::band).
  virtual std::vector<TensorSpec> sample_layout(const std::optional<RowBand>& rows) const = 0;
  // For people: what the cost of a step depends on besides sizes; empty: nothing.
  virtual std::string note_on_cost() const { return {}; }
};

}  // namespace isobar
