// The recipe of forecasts of fields, as it is declared. Its data, opened: models/forecast/opened.h.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/era5/catalog.h"
#include "data/era5/pairs.h"
#include "data/era5/split.h"
#include "data/era5/statistics.h"
#include "models/forecast/forecaster.h"
#include "models/recipe.h"

namespace isobar {

inline constexpr const char* kForecastTask = "forecast";  // its name in the list

// What a data set's files say of their sizes.
struct DataSizes {
  std::int64_t channels = 0, height = 0, width = 0;
  bool tells_time = false;  // every file says when its steps are
};
DataSizes sizes_of(const Era5Dataset& data);

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
  std::unique_ptr<TaskSource> on_shapes() const override;

  // Whether sizes of grid, channels or network, or the time features, are left to the data.
  bool wants_sizes() const;
  // Fills those. Returns "KEY VALUE, KEY VALUE" of what it set; empty where nothing was left to the data.
  std::string fill_sizes(const DataSizes& data, KeyOrigins& origins);
  // Fills those, and the ranges that tell the sets of one path apart, from the training files. Returns a sentence for
  // each; opens nothing where nothing is null.
  std::vector<std::string> fill_from_data(KeyOrigins& origins, const std::shared_ptr<FieldCatalog>& catalog);

  // Below, the sizes must be known.
  //
  // The forecaster of these options and fields.
  ForecasterOptions forecaster_options() const;
  // A data set with this recipe's grid, names and dt.
  Era5Options fields_at(const std::string& path) const;
  PairOptions pairs_of(DataSplit set) const;
  // What a data set of these options says of its fields, not labelled yet (models/forecast/fit.h).
  FieldsInfo info_of(const Era5Dataset& dataset, const Statistics& statistics) const;
  // The names of a data set's channels: the config's, else the files', else the tutorial's twenty, else c0, c1, ...
  // Throws Error where the files have another number of channels than n_in_channels.
  std::vector<std::string> channel_names_of(const Era5Dataset& dataset) const;

 private:
  void check_filled_keys(const KeyOrigins& origins);

  std::shared_ptr<NetworkRecipe> network_;
};

std::unique_ptr<Recipe> make_forecast_recipe(std::shared_ptr<NetworkRecipe> network);

}  // namespace isobar
