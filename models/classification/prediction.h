// What a classifier computes of images: the dataset `probabilities` [N, classes], whose rows add up to 1.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/images/labelled_images.h"
#include "models/classification/classifier.h"
#include "models/network.h"
#include "models/prediction.h"

namespace isobar {

class ClassPrediction : public OpenedPrediction {
 public:
  // trained: of the images that the network was trained on, which have the size of these.
  ClassPrediction(std::shared_ptr<const NetworkRecipe> network, const ImagesInfo& trained, LabelledImages images)
      : network_(std::move(network)), trained_(trained), images_(std::move(images)) {}

  std::string dataset() const override { return "probabilities"; }
  Shape shape() const override { return {images_.samples(), trained_.classes}; }
  std::vector<std::string> units() const override { return {}; }
  std::vector<std::string> sentences() const override;
  std::string missing_target() const override { return images_.has_labels() ? "" : "labels"; }
  const Dataset& parts() const override { return images_; }
  Task& make_task(const ComputeOptions& compute, Device device) override;
  std::vector<PredictedBox> compute(std::span<const std::int64_t> parts, const Batch& batch,
                                    Metrics* metrics) const override;

 private:
  const std::shared_ptr<const NetworkRecipe> network_;
  const ImagesInfo trained_;
  const LabelledImages images_;
  std::unique_ptr<Classifier> task_;
};

}  // namespace isobar
