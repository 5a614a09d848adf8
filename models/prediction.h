// What trained weights compute of data, to be written into a file. The data are cut into parts that the network takes
// at once: images, or crops of a volume. Each part gives one box of the file's dataset, and no two boxes overlap, so
// that neither the order of the parts nor the size of a batch of them matters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/dataset.h"
#include "engine/tensor.h"
#include "models/compute_options.h"
#include "models/task.h"

namespace isobar {

struct PredictionRequest {
  std::string input = {};                    // a file, or a folder of files; empty: the validation set of the config
  std::optional<std::int64_t> overlap = {};  // of neighbouring crops, in points; none: half of a crop
};

// A box of the dataset of all predictions, row-major: its first element, its extents, and its values.
struct PredictedBox {
  std::vector<std::int64_t> start, count;
  std::vector<float> values;
};

// Opened data, and the task that computes them.
class OpenedPrediction {
 public:
  OpenedPrediction() = default;
  virtual ~OpenedPrediction() = default;
  OpenedPrediction(const OpenedPrediction&) = delete;  // parts refer to the files
  OpenedPrediction& operator=(const OpenedPrediction&) = delete;

  // The dataset of all predictions: its name, which is the target's in files of this task if there is one, its shape,
  // and its units if they are known, one for all channels or one for each.
  virtual std::string dataset() const = 0;
  virtual Shape shape() const = 0;
  virtual std::vector<std::string> units() const = 0;
  // What the data are and how they are cut, for people: one line each.
  virtual std::vector<std::string> sentences() const = 0;
  // What the data lack for predictions to be scored, for people: "'target'"; empty: nothing.
  virtual std::string missing_target() const = 0;

  // The samples of this data set are the parts.
  virtual const Dataset& parts() const = 0;
  // Makes the task, which this object owns, with initial weights: the caller reads the trained ones into it.
  virtual Task& make_task(const ComputeOptions& compute, Device device) = 0;
  // The boxes of these parts, whose tensors are given as a host batch. Adds them to the metrics, which the task made,
  // unless they are null. Call make_task() first.
  virtual std::vector<PredictedBox> compute(std::span<const std::int64_t> parts, const Batch& batch,
                                            Metrics* metrics) const = 0;
};

}  // namespace isobar
