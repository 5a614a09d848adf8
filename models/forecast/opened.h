// The opened data of a forecast: pairs of steps of ERA5 files, and the statistics that normalise them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "data/fields/pairs.h"
#include "models/forecast/fields_info.h"
#include "models/forecast/findings.h"
#include "models/forecast/recipe.h"

namespace isobar {

// The files of a set, and the pairs of their steps, which refer to the files.
struct OpenedPairs {
  OpenedPairs(const FieldSeriesOptions& files, const ForecastRecipe& recipe, DataSplit set, bool is_scored,
              const CarriedConstants& carried = {})
      : steps(files), pairs(steps, recipe.pairs_of(set, steps, is_scored, carried)) {}
  OpenedPairs(const OpenedPairs&) = delete;
  OpenedPairs& operator=(const OpenedPairs&) = delete;

  const FieldSeries steps;
  const PairDataset pairs;
};

// The files of the statistics that normalise a run's fields.
struct StatisticsPlaces {
  std::string means, stds, time_means;  // paths from the config, or in the run's folder
  bool are_own = false;                 // they are in the run's folder
  bool are_missing = false;             // they are computed from the training steps
  std::string sentence = {};            // a line for the log if they are own or missing
};

class OpenedForecast : public OpenedRecipe {
 public:
  // sentences: lines for the log from before.
  OpenedForecast(ForecastRecipe recipe, const OpenRequest& request, ForecastFindings findings,
                 std::vector<std::string> sentences);

  const Dataset& train() const override { return train_.pairs; }
  std::vector<TrainingStage> stages() const override;
  const Dataset& valid() const override { return valid_.pairs; }
  const Dataset* also_valid() const override { return leads_ ? &*leads_ : nullptr; }
  const Dataset* test() const override { return test_ ? &test_->pairs : nullptr; }
  std::vector<std::string> sentences() const override { return sentences_; }
  std::vector<FoundKey> found() const override;
  void keep(const std::filesystem::path& kept) const override;
  std::string findings() const override { return findings_.pack(); }
  std::vector<std::string> warnings() const override;
  std::vector<std::string> notes() const override;
  void check_start(const GivenWeights& weights) const override;
  void check_resume(const GivenWeights& weights) const override;
  FieldsMeaning meaning() const override { return recipe_.meaning_of(info_); }
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override;
  std::unique_ptr<Task> make_trained_task(const GivenWeights& weights, const ComputeOptions& compute, Device device,
                                          const Parallel& parallel) const override;

  const FieldsInfo& info() const { return info_; }

 private:
  FieldSeriesOptions files_of(DataSplit split) const;
  std::vector<std::string> named_channels() const;
  std::map<std::int64_t, PairDataset> make_shorter_views() const;
  std::vector<ScoredLead> valid_leads() const;
  std::optional<PairDataset> make_leads() const;
  std::unique_ptr<const OpenedPairs> open_test() const;
  ComputedStatistics computed_statistics() const;
  FieldsInfo make_info();
  void check_sets() const;
  std::vector<const OpenedPairs*> sets() const;  // those that exist
  std::unique_ptr<Task> make_task_of(const FieldsInfo& info, const ComputeOptions& compute, Device device,
                                     const Parallel& parallel) const;

  // In the order of opening.
  const ForecastRecipe recipe_;
  ForecastFindings findings_;
  const OpeningProcess process_;
  const StatisticsPlaces statistics_;
  const OpenedPairs train_;
  const std::map<std::int64_t, PairDataset> shorter_views_;  // of the training set, by their steps
  // Channels of the training set; the other sets must have the same.
  const std::vector<std::string> names_;
  const OpenedPairs valid_;
  const std::optional<PairDataset> leads_;         // longer forecasts from some of the validation set's starts
  const std::unique_ptr<const OpenedPairs> test_;  // null: the config has no test set
  const FieldsInfo info_;
  std::vector<std::string> sentences_;
};

// One set, normalised with the statistics that the weights were trained with, else with those that the config names.
class OpenedForecastSplit : public OpenedSplit {
 public:
  OpenedForecastSplit(ForecastRecipe recipe, DataSplit split, const GivenWeights& weights);

  const Dataset& samples() const override { return set_.pairs; }
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device) const override;

  const FieldsInfo& info() const { return info_; }

 private:
  FieldSeriesOptions files_of(DataSplit split) const;
  FieldsInfo make_info() const;

  // In the order of opening.
  const ForecastRecipe recipe_;
  const std::string weights_;                // the file
  const std::optional<FieldsInfo> trained_;  // the description stored with the weights
  const OpenedPairs set_;
  const FieldsInfo info_;
};

}  // namespace isobar
