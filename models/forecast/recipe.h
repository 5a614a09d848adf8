// The declared recipe of forecasts of fields. For its opened data see models/forecast/opened.h.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/fields/catalog.h"
#include "data/fields/pairs.h"
#include "data/fields/split.h"
#include "data/fields/statistics.h"
#include "models/forecast/channel_weights.h"
#include "models/forecast/forecaster.h"
#include "models/recipe.h"

namespace isobar {

inline constexpr const char* kForecastTask = "forecast";  // the name in the list of tasks

// The sizes that a data set's files determine.
struct DataSizes {
  std::int64_t channels = 0, height = 0, width = 0;
  bool has_times = false;  // whether the times of all steps are known
};
DataSizes sizes_of(const FieldSeries& data);

class ForecastRecipe : public Recipe {
 public:
  explicit ForecastRecipe(std::shared_ptr<NetworkRecipe> network = make_network_recipe())
      : network_(std::move(network)) {}

  ForecastOptions forecast;
  SplitOptions split;

  std::vector<KeyTable> keys() override;
  std::vector<std::pair<std::string, std::filesystem::path>> paths_in(
      const std::filesystem::path& folder) const override;
  std::unique_ptr<OpenedRecipe> open(KeyOrigins& origins, const OpenRequest& request) override;
  std::unique_ptr<OpenedSplit> open_split(DataSplit set, const GivenWeights& weights) const override;
  // Always an Error: a forecast has a command of its own.
  std::unique_ptr<OpenedPrediction> open_prediction(const PredictionRequest& request,
                                                    const GivenWeights& weights) const override;
  FieldsMeaning meaning_of(const GivenWeights& weights) const override;
  std::unique_ptr<TaskSource> on_shapes() const override;

  // Whether sizes of grid, channels or network, the time features or pad_grid are left to the data.
  bool needs_sizes() const;
  // Fills them. Returns "KEY VALUE, KEY VALUE" of the keys that it set; empty if no key was left to the data.
  std::string fill_sizes(const DataSizes& data, KeyOrigins& origins);
  // Fills them, and the ranges that separate sets in one path, from the training files. Returns one sentence for each;
  // opens no file if no key is null.
  std::vector<std::string> fill_from_data(KeyOrigins& origins, const std::shared_ptr<FieldCatalog>& catalog);

  // A data set whose sizes fill those that are left to it. fill_from_roles must have been called.
  FieldSeriesOptions fields_before_sizes(const std::vector<std::string>& paths,
                                         const std::shared_ptr<FieldCatalog>& catalog = nullptr) const;

  // The functions below need known sizes.
  //
  FieldsMeaning meaning_of(const FieldsInfo& info) const;
  // The forecaster for these options.
  ForecasterOptions forecaster_options() const;
  // A data set with the grid, names and dt of this recipe.
  FieldSeriesOptions fields_at(const std::vector<std::string>& paths) const;
  // The forcings of such a data set alone, whose steps may go beyond those of the other channels. None if the model
  // reads no forcings by name.
  std::optional<FieldSeriesOptions> forcings_at(const std::vector<std::string>& paths) const;
  // The samples of a set, of the data's planes by their roles: as long as the longest rollout of training or, of a set
  // that is scored, of validation. carried: the constants of the weights that are judged; empty: those of the files.
  PairOptions pairs_of(DataSplit set, const FieldSeries& dataset, bool is_scored,
                       const CarriedConstants& carried = {}) const;
  WindowOptions windows_of(const FieldSeries& dataset, const CarriedConstants& carried = {}) const;
  std::vector<std::string> channels_with_missing_points() const;
  std::vector<std::string> channels_with_filled_chunks() const;
  std::map<std::string, double> log_scales() const;
  // The statistics in these files, for the channels of the data.
  Statistics statistics_at(const std::string& means, const std::string& stds, const FieldSeries& dataset) const;
  // [n_out] of the forecast variables, if their weights ask for it; else empty. folder: of the statistics.
  bool needs_changes() const { return forecast.channel_weights && need_changes(*forecast.channel_weights); }
  std::vector<double> change_stds_at(const std::filesystem::path& folder, const FieldSeries& dataset) const;
  // The facts about the fields of a data set; models/forecast/fit.h adds units and time step.
  FieldsInfo info_of(const Windows& windows, const Statistics& statistics) const;
  // The names of a data set's channels: those of the config, else of the files, else the tutorial's 20, else c0, c1,
  // ... Throws Error if the number of channels in the files is not n_in_channels.
  std::vector<std::string> channel_names_of(const FieldSeries& dataset) const;

 private:
  void check_filled_keys(const KeyOrigins& origins);
  std::string fill_dt(const FieldSeries& data, KeyOrigins& origins);

  std::shared_ptr<NetworkRecipe> network_;
};

std::unique_ptr<Recipe> make_forecast_recipe(std::shared_ptr<NetworkRecipe> network);

}  // namespace isobar
