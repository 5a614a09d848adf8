// The task of classifying images: a network from images to logits, cross entropy, accuracy.
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

// What the data tell a classifier of their images.
struct ImagesInfo {
  std::int64_t height = 0, width = 0, classes = 0;
  double mean = 0, std = 1;     // of the pixels of the training set
  bool ignores_labels = false;  // some may be kIgnoredLabel
};

Ports classifier_ports(const ImagesInfo& info);

class Classifier : public Task {
 public:
  // Weights start from compute.seed. Error where fp64 is asked for on a GPU, and for ranks that share an image.
  Classifier(const std::shared_ptr<const NetworkRecipe>& network, const ComputeOptions& compute, const ImagesInfo& info,
             Device device, const Parallel& parallel = Parallel::alone());

  // A batch has "image" [B, 1, H, W] fp32, as the files hold it, and "label" [B] i32. Returns the logits [B, classes]
  // in the parameters' dtype. Error where the images have another size.
  Tensor logits(const Batch& batch, const Pass& pass = {}) const;

  std::string network() const override { return network_->name() + " classifier"; }
  Parameters& parameters() override { return *parameters_; }
  const Parameters& parameters() const override { return *parameters_; }
  Tensor loss(const Batch& batch, const Pass& pass) const override;
  // The images whose label is not ignored; on the device meta, where labels have no values, all of them.
  double weight(const Batch& batch) const override;
  bool counts_samples() const override { return !info_.ignores_labels; }
  std::unique_ptr<Metrics> metrics() const override;
  void score(const Batch& batch, Metrics& metrics) const override;
  std::int64_t picture_samples() const override { return 1000; }
  // The first images that are read wrongly, each with its label and what it was taken for.
  std::vector<Picture> pictures(const Batch& batch, std::int64_t iteration) const override;
  Settings settings() const override;

 private:
  ImagesInfo info_;
  std::unique_ptr<Parameters> parameters_;  // the network refers to it
  std::unique_ptr<Network> network_;
  Tensor mean_, std_;  // [1] fp64
};

// What Classifier::settings stored; Error for anything else.
ImagesInfo images_info_from(const Settings& settings);
bool describes_images(const Settings& settings);

}  // namespace isobar
