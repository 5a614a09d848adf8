// The recipe of image classification: IDX files (MNIST and data sets in its format), accuracy.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/images/labelled_images.h"
#include "models/classification/classifier.h"
#include "models/classification/options.h"
#include "models/recipe.h"

namespace isobar {

class ClassificationRecipe : public Recipe {
 public:
  explicit ClassificationRecipe(std::shared_ptr<NetworkRecipe> network = make_network_recipe())
      : network_(std::move(network)) {}

  ClassificationOptions images;

  std::vector<KeyTable> keys() override;
  std::vector<std::pair<std::string, std::filesystem::path>> paths_in(
      const std::filesystem::path& folder) const override;
  std::unique_ptr<OpenedRecipe> open(KeyOrigins& origins, const OpenRequest& request) override;
  std::unique_ptr<OpenedSplit> open_split(DataSplit split, const GivenWeights& weights) const override;
  std::unique_ptr<OpenedPrediction> open_prediction(const PredictionRequest& request,
                                                    const GivenWeights& weights) const override;
  // Always an Error: only the data know the size of the images.
  std::unique_ptr<TaskSource> on_shapes() const override;

 private:
  std::string fill(const LabelledImages& train, KeyOrigins& origins);

  std::shared_ptr<NetworkRecipe> network_;
};

// The sets, in memory.
class OpenedClassification : public OpenedRecipe {
 public:
  OpenedClassification(std::shared_ptr<const NetworkRecipe> network, const ClassificationOptions& options,
                       LabelledImages train, std::vector<std::string> sentences);

  const Dataset& train() const override { return train_; }
  const Dataset& valid() const override { return valid_; }
  const Dataset* test() const override { return test_ ? &*test_ : nullptr; }
  std::vector<std::string> sentences() const override { return sentences_; }
  void check_start(const GivenWeights& weights) const override;
  void check_resume(const GivenWeights& weights) const override;
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override;
  std::unique_ptr<Task> make_trained_task(const GivenWeights& weights, const ComputeOptions& compute, Device device,
                                          const Parallel& parallel) const override;

 private:
  const std::shared_ptr<const NetworkRecipe> network_;
  const LabelledImages train_, valid_;
  const std::optional<LabelledImages> test_;  // none: the config has no test set
  const ImagesInfo info_;
  const std::vector<std::string> sentences_;
};

class OpenedClassificationSplit : public OpenedSplit {
 public:
  OpenedClassificationSplit(std::shared_ptr<const NetworkRecipe> network, const ClassificationOptions& options,
                            DataSplit split, const GivenWeights& weights);

  const Dataset& samples() const override { return images_; }
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device) const override;

 private:
  const std::shared_ptr<const NetworkRecipe> network_;
  const LabelledImages images_;
  const ImagesInfo info_;  // of the training images of the weights
};

std::unique_ptr<Recipe> make_classification_recipe(std::shared_ptr<NetworkRecipe> network);

}  // namespace isobar
