// The task of classifying images: a network from images to logits, with cross entropy and accuracy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/parallel.h"
#include "models/compute_options.h"
#include "models/network.h"
#include "models/task.h"

namespace isobar {

// Facts about the images that the data determine.
struct ImagesInfo {
  std::int64_t height = 0, width = 0, classes = 0;
  double mean = 0, std = 1;     // over the pixels of the training set
  bool ignores_labels = false;  // whether labels may be kIgnoredLabel
};

Ports classifier_ports(const ImagesInfo& info);

class Classifier : public Task {
 public:
  // Weights are initialised from compute.seed. Error for fp64 on a GPU, and if ranks share an image.
  Classifier(const std::shared_ptr<const NetworkRecipe>& network, const ComputeOptions& compute, const ImagesInfo& info,
             Device device, const Parallel& parallel = Parallel::alone());

  // A batch has "image" [B, 1, height, width] fp32 with the values of the files, and "label" [B] i32. Returns the
  // logits [B, classes] in the parameters' dtype. Error if the images have another size.
  Tensor logits(const Batch& batch, const Pass& pass = {}) const;

  std::string network() const override { return network_->name() + " classifier"; }
  Parameters& parameters() override { return *parameters_; }
  const Parameters& parameters() const override { return *parameters_; }
  Tensor loss(const Batch& batch, const Pass& pass) const override;
  // The number of images whose label is not ignored; on the device meta, where labels have no values, all images.
  double weight(const Batch& batch) const override;
  bool counts_samples() const override { return !info_.ignores_labels; }
  std::unique_ptr<Metrics> metrics() const override;
  void score(const Batch& batch, Metrics& metrics) const override;
  std::int64_t picture_samples() const override { return 1000; }
  // The first misclassified images, each with its label and its prediction.
  std::vector<Picture> pictures(const Batch& batch, std::int64_t iteration) const override;
  Settings settings() const override;

 private:
  ImagesInfo info_;
  std::unique_ptr<Parameters> parameters_;  // the network refers to it
  std::unique_ptr<Network> network_;
  Tensor mean_, std_;  // [1] fp64
};

// The inverse of Classifier::settings; Error for any other settings.
ImagesInfo images_info_from(const Settings& settings);
bool describes_images(const Settings& settings);

}  // namespace isobar
