// The recipe of volume regression: crops of a pair of volumes, from files, from memory, or synthetic ones.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/recipe.h"
#include "models/volume_regression/options.h"

namespace isobar {

class VolumeRegressionRecipe : public Recipe {
 public:
  explicit VolumeRegressionRecipe(std::shared_ptr<NetworkRecipe> network = make_network_recipe())
      : network_(std::move(network)) {}

  VolumeRegressionOptions volumes;

  std::vector<KeyTable> keys() override;
  // A folder with train/ and valid/.
  std::vector<std::pair<std::string, std::filesystem::path>> paths_in(
      const std::filesystem::path& folder) const override;
  std::unique_ptr<OpenedRecipe> open(KeyOrigins& origins, const OpenRequest& request) override;
  std::unique_ptr<OpenedSplit> open_split(DataSplit split, const GivenWeights& weights) const override;
  std::unique_ptr<OpenedPrediction> open_prediction(const PredictionRequest& request,
                                                    const GivenWeights& weights) const override;
  // Error where the channels are left to files.
  std::unique_ptr<TaskSource> on_shapes() const override;

 private:
  std::shared_ptr<NetworkRecipe> network_;
};

std::unique_ptr<Recipe> make_volume_regression_recipe(std::shared_ptr<NetworkRecipe> network);

}  // namespace isobar
