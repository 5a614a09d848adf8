// The recipe of forecasts of fields: pairs of steps of ERA5 files, a vision transformer, RMSE beside persistence.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/era5/catalog.h"
#include "data/era5/pairs.h"
#include "data/era5/split.h"
#include "data/era5/statistics.h"
#include "models/forecast/forecaster.h"
#include "models/recipe.h"

namespace isobar {

// What a data set's files say of their sizes.
struct DataSizes {
  std::int64_t channels = 0, height = 0, width = 0;
  bool tells_time = false;  // every file says when its steps are
};
DataSizes sizes_of(const Era5Dataset& data);

class ForecastRecipe : public Recipe {
 public:
  VitOptions vit;
  ForecastOptions forecast;
  SplitOptions split;

  std::vector<KeyTable> keys() override;
  std::vector<std::pair<std::string, std::filesystem::path>> paths_in(
      const std::filesystem::path& folder) const override;
  std::vector<std::string> complete(KeyOrigins& origins) override;
  std::vector<std::string> open(const std::filesystem::path& kept, bool resumed) override;
  void keep(const std::filesystem::path& kept) const override;
  std::string findings() const override;
  void adopt(const std::string& findings) override;
  const Dataset& train() const override { return *train_pairs_; }
  const Dataset& valid() const override { return *valid_pairs_; }
  std::vector<std::string> warnings() const override;
  std::vector<std::string> notes() const override;
  void check_start(const GivenWeights& weights) const override;
  void check_resume(const GivenWeights& weights) const override;
  Holding holding(const ComputeOptions& compute, const Parallel& parallel) const override;
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override;
  std::unique_ptr<Task> make_trained_task(const GivenWeights& weights, const ComputeOptions& compute,
                                          Device device) const override;

  // Whether sizes of grid, channels or patch, or the time features, are left to the data.
  bool wants_sizes() const;
  // Fills those. Returns "KEY VALUE, KEY VALUE" of what it set; empty where nothing was left to the data.
  std::string fill_sizes(const DataSizes& data, KeyOrigins& origins);
  // The forecaster of these options and fields.
  ForecasterOptions forecaster_options() const;
  // A data set with this recipe's grid, names and dt. range_key names the key that the range came from.
  Era5Dataset open_fields(const std::string& path, const std::optional<StepRange>& range = {},
                          const char* range_key = "") const;
  // What a data set of these options says of its fields, not labelled yet (models/forecast/fit.h).
  FieldsInfo info_of(const Era5Dataset& dataset, const Statistics& statistics) const;
  // The names of a data set's channels: the config's, else the files', else the tutorial's twenty, else c0, c1, ...
  // Throws Error where the files have another number of channels than n_in_channels.
  std::vector<std::string> channel_names_of(const Era5Dataset& dataset) const;

 private:
  std::optional<std::string> choose_statistics(const std::filesystem::path& kept, bool resumed);
  std::unique_ptr<Task> make_task_of(const FieldsInfo& info, const ComputeOptions& compute, Device device,
                                     const Parallel& parallel = Parallel::alone()) const;

  std::shared_ptr<FieldCatalog> catalog_ = std::make_shared<FieldCatalog>();
  bool others_look_ = false;      // another process has looked at the data, and this one goes by its findings
  bool make_statistics_ = false;  // of the training steps: no files have them
  std::optional<Era5Dataset> train_, valid_;
  std::optional<PairDataset> train_pairs_, valid_pairs_;
  std::optional<ComputedStatistics> made_;
  FieldsInfo info_;
};

std::unique_ptr<Recipe> make_forecast_recipe();

}  // namespace isobar
