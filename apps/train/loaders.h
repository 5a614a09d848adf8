// The data a config names: both data sets opened and checked, their loaders, and what the model must know of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/era5/era5.h"
#include "data/era5/pairs.h"
#include "data/era5/statistics.h"
#include "data/loader.h"
#include "models/config.h"
#include "models/forecast/forecaster.h"

namespace isobar {

// The names of a data set's channels: the config's, else the files', else the tutorial's twenty, else c0, c1, ...
// Throws Error where the files have another number of channels than n_in_channels.
std::vector<std::string> channel_names_of(const Config& config, const Era5Dataset& dataset);

// Where the statistics come from that fields are normalised with.
enum class StatisticsFrom { files, training_steps };

// Whether none of the three files exists that the config names.
bool statistics_are_missing(const Config& config);

class TrainingData {
 public:
  // Host buffers are pinned where the device is a GPU. Throws Error where a step is in both sets and allow_overlap is
  // false, beside what each data set refuses.
  TrainingData(const Config& config, Device device, StatisticsFrom statistics = StatisticsFrom::files);

  const Era5Dataset& train() const { return train_; }
  const Era5Dataset& valid() const { return valid_; }
  Loader& train_loader() { return train_loader_; }  // batches of global_batch_size / grad_accumulation samples
  Loader& valid_loader() { return valid_loader_; }  // every sample, in order
  const PairDataset& valid_pairs() const { return valid_pairs_; }
  const Grid& grid() const { return grid_; }

  // What people should know of the samples, one sentence each: the pairs over holes in time that were left out.
  std::vector<std::string> notes() const;

  std::int64_t samples() const { return train_pairs_.samples(); }  // before incomplete batches are dropped
  std::int64_t iterations_per_epoch() const { return samples() / config_.global_batch_size; }

  // Computed from the training steps; none where they came from files.
  const std::optional<ComputedStatistics>& made_statistics() const { return made_statistics_; }

  // Reads the first batch of each set, which refuses NaN and damaged files, and goes back to the beginning.
  void try_first_batches();

  // The next part of a batch. Parts that would make an incomplete batch at an epoch's end are passed over.
  std::shared_ptr<const LoadedBatch> next();

 private:
  Config config_;
  Era5Dataset train_;
  std::vector<std::string> channel_names_;
  Era5Dataset valid_;
  std::optional<ComputedStatistics> made_statistics_;
  Grid grid_;
  PairDataset train_pairs_, valid_pairs_;
  Loader train_loader_, valid_loader_;
};

}  // namespace isobar
