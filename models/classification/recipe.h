// The recipe of classifying images: the IDX files of MNIST and its like, a vision transformer, accuracy.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/images/labelled_images.h"
#include "models/classification/classifier.h"
#include "models/classification/options.h"
#include "models/recipe.h"
#include "models/vit/options.h"

namespace isobar {

class ClassificationRecipe : public Recipe {
 public:
  VitOptions vit;
  ClassificationOptions images;

  std::vector<KeyTable> keys() override;
  std::vector<std::pair<std::string, std::filesystem::path>> paths_in(
      const std::filesystem::path& folder) const override;
  std::vector<std::string> complete(KeyOrigins& origins) override;
  std::vector<std::string> open(const std::filesystem::path& kept, bool resumed) override;
  const Dataset& train() const override { return *train_; }
  const Dataset& valid() const override { return *valid_; }
  void check_start(const GivenWeights& weights) const override;
  void check_resume(const GivenWeights& weights) const override;
  Holding holding(const ComputeOptions& compute, const Parallel& parallel) const override;
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override;
  std::unique_ptr<Task> make_trained_task(const GivenWeights& weights, const ComputeOptions& compute,
                                          Device device) const override;

 private:
  std::optional<LabelledImages> train_, valid_;
  ImagesInfo info_;
};

std::unique_ptr<Recipe> make_classification_recipe();

}  // namespace isobar
