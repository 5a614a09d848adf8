// What a classifier computes of images: the dataset `probabilities` [N, classes], whose rows add up to 1.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/images/labelled_images.h"
#include "models/classification/classifier.h"
#include "models/network.h"
#include "models/prediction.h"

namespace isobar {

// Images of an IDX file without labels: "image" [1, height, width] fp32, the byte values 0 to 255.
class UnlabelledImages : public Dataset {
 public:
  explicit UnlabelledImages(const std::string& path) : name_(path), images_(read_idx_images(path)) {}

  std::string name() const override { return name_; }
  std::int64_t samples() const override { return images_.shape[0]; }
  std::vector<TensorSpec> layout() const override;
  void read(const SampleKey& key, std::span<void* const> to) const override;

  std::int64_t height() const { return images_.shape[1]; }
  std::int64_t width() const { return images_.shape[2]; }

 private:
  std::string name_;
  IdxArray images_;
};

class ClassPrediction : public OpenedPrediction {
 public:
  // trained: of the images that the network was trained on, which have the size of these. Without labels there are no
  // scores.
  ClassPrediction(std::shared_ptr<const NetworkRecipe> network, const ImagesInfo& trained,
                  std::unique_ptr<const Dataset> images, bool has_labels)
      : network_(std::move(network)), trained_(trained), images_(std::move(images)), has_labels_(has_labels) {}

  std::string dataset() const override { return "probabilities"; }
  Shape shape() const override { return {images_->samples(), trained_.classes}; }
  std::vector<std::string> units() const override { return {}; }
  std::vector<std::string> sentences() const override;
  std::string missing_target() const override { return has_labels_ ? "" : "labels"; }
  const Dataset& parts() const override { return *images_; }
  Task& make_task(const ComputeOptions& compute, Device device) override;
  std::vector<PredictedBox> compute(std::span<const std::int64_t> parts, const Batch& batch,
                                    Metrics* metrics) const override;

 private:
  const std::shared_ptr<const NetworkRecipe> network_;
  const ImagesInfo trained_;
  const std::unique_ptr<const Dataset> images_;
  const bool has_labels_;
  std::unique_ptr<Classifier> task_;
};

}  // namespace isobar
