// The recipe of image regression: pairs of images, random, from HDF5 files, or small images to be freed of noise.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/images/image_pairs.h"
#include "models/image_regression/options.h"
#include "models/recipe.h"
#include "models/regression/regressor.h"

namespace isobar {

class ImageRegressionRecipe : public Recipe {
 public:
  explicit ImageRegressionRecipe(std::shared_ptr<NetworkRecipe> network = make_network_recipe())
      : network_(std::move(network)) {}

  ImageRegressionOptions pairs;

  std::vector<KeyTable> keys() override;
  // A folder with train/ and valid/, or one with the IDX files of images.
  std::vector<std::pair<std::string, std::filesystem::path>> paths_in(
      const std::filesystem::path& folder) const override;
  std::unique_ptr<OpenedRecipe> open(KeyOrigins& origins, const OpenRequest& request) override;
  std::unique_ptr<OpenedSplit> open_split(DataSplit split, const GivenWeights& weights) const override;
  std::unique_ptr<OpenedPrediction> open_prediction(const PredictionRequest& request,
                                                    const GivenWeights& weights) const override;
  // Error where a size is left to files.
  std::unique_ptr<TaskSource> on_shapes() const override;

 private:
  // Gives the keys that are null the values of the data; returns "KEY VALUE, ...".
  std::string fill(const PairSizes& sizes, std::int64_t train_samples, std::int64_t valid_samples, KeyOrigins& origins);

  std::shared_ptr<NetworkRecipe> network_;
};

std::unique_ptr<Recipe> make_image_regression_recipe(std::shared_ptr<NetworkRecipe> network);

}  // namespace isobar
