// The data of a forecast, opened: pairs of steps of ERA5 files, and the statistics that normalise them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/era5/era5.h"
#include "data/era5/pairs.h"
#include "models/forecast/fields_info.h"
#include "models/forecast/findings.h"
#include "models/forecast/recipe.h"

namespace isobar {

// A set's files, and the pairs of their steps, which refer to these.
struct OpenedPairs {
  OpenedPairs(const Era5Options& files, const PairOptions& options) : steps(files), pairs(steps, options) {}
  OpenedPairs(const OpenedPairs&) = delete;
  OpenedPairs& operator=(const OpenedPairs&) = delete;

  const Era5Dataset steps;
  const PairDataset pairs;
};

// Where the statistics are that normalise a run's fields.
struct StatisticsPlaces {
  std::string means, stds, time_means;  // as the config names them, or in the run's own folder
  bool are_own = false;                 // the run's own
  bool are_missing = false;             // nobody has made them: they are made from the training steps
  std::string sentence = {};            // for people, where they are own or missing
};

class OpenedForecast : public OpenedRecipe {
 public:
  // sentences: what was said before.
  OpenedForecast(ForecastRecipe recipe, const OpenRequest& request, ForecastFindings findings,
                 std::vector<std::string> sentences);

  const Dataset& train() const override { return train_.pairs; }
  const Dataset& valid() const override { return valid_.pairs; }
  const Dataset* test() const override { return test_ ? &test_->pairs : nullptr; }
  std::vector<std::string> sentences() const override { return sentences_; }
  std::vector<FoundKey> found() const override;
  void keep(const std::filesystem::path& kept) const override;
  std::string findings() const override { return findings_.pack(); }
  std::vector<std::string> warnings() const override;
  std::vector<std::string> notes() const override;
  void check_start(const GivenWeights& weights) const override;
  void check_resume(const GivenWeights& weights) const override;
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override;
  std::unique_ptr<Task> make_trained_task(const GivenWeights& weights, const ComputeOptions& compute, Device device,
                                          const Parallel& parallel) const override;

  const FieldsInfo& info() const { return info_; }

 private:
  Era5Options files_of(DataSplit split) const;
  PairOptions pairs_of(DataSplit split) const;
  std::vector<std::string> named_channels() const;
  std::unique_ptr<const OpenedPairs> open_test() const;
  FieldsInfo make_info();
  void check_sets() const;
  std::vector<const OpenedPairs*> sets() const;  // those that there are
  std::unique_ptr<Task> make_task_of(const FieldsInfo& info, const ComputeOptions& compute, Device device,
                                     const Parallel& parallel) const;

  // In the order in which they are opened.
  const ForecastRecipe recipe_;
  ForecastFindings findings_;
  const OpeningProcess process_;
  const StatisticsPlaces statistics_;
  const OpenedPairs train_;
  const std::vector<std::string> names_;  // of the training set's channels; the other sets must have them too
  const OpenedPairs valid_;
  const std::unique_ptr<const OpenedPairs> test_;  // null: the config names none
  const FieldsInfo info_;
  std::vector<std::string> sentences_;
};

// One set for weights that say what fields they were trained on, or else for the statistics that the config names.
class OpenedForecastSplit : public OpenedSplit {
 public:
  OpenedForecastSplit(ForecastRecipe recipe, DataSplit split, const GivenWeights& weights);

  const Dataset& samples() const override { return set_.pairs; }
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device) const override;

  const FieldsInfo& info() const { return info_; }

 private:
  Era5Options files_of(DataSplit split) const;
  FieldsInfo make_info(const std::string& weights) const;

  // In the order in which they are opened.
  const ForecastRecipe recipe_;
  const std::optional<FieldsInfo> trained_;  // what the weights say
  const OpenedPairs set_;
  const FieldsInfo info_;
};

}  // namespace isobar
