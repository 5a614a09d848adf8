// The task of classifying images: a vision transformer whose head reads every token, cross entropy, accuracy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/parallel.h"
#include "models/compute_options.h"
#include "models/layers/linear.h"
#include "models/task.h"
#include "models/vit/options.h"
#include "models/vit/trunk.h"

namespace isobar {

// What the data tell a classifier of their images.
struct ImagesInfo {
  std::int64_t height = 0, width = 0, classes = 0;
  double mean = 0, std = 1;  // of the pixels of the training set
};

struct ClassifierNetwork {
  // Lists its parameters, the trunk's first.
  ClassifierNetwork(const VitOptions& vit, const ComputeOptions& compute, const ImagesInfo& info,
                    Parameters& parameters, const Parallel& parallel);

  VitTrunk trunk;
  Linear head;  // of all tokens of an image
};

class Classifier : public Task {
 public:
  // Weights start from compute.seed. Error where fp64 is asked for on a GPU, and for context-parallel ranks.
  Classifier(const VitOptions& vit, const ComputeOptions& compute, const ImagesInfo& info, Device device,
             const Parallel& parallel = Parallel::alone());

  // A batch has "image" [B, 1, H, W] fp32, as the files hold it, and "label" [B] i32. Returns the logits [B, classes]
  // in the parameters' dtype. Error where the images have another size.
  Tensor logits(const Batch& batch, const Context& context = {}) const;

  std::string network() const override { return "ViT classifier"; }
  Parameters& parameters() override { return *parameters_; }
  const Parameters& parameters() const override { return *parameters_; }
  Tensor loss(const Batch& batch, const Context& context) const override;
  void add_traffic(std::int64_t samples, CommLedger& ledger) const override;
  std::unique_ptr<Metrics> metrics() const override;
  void score(const Batch& batch, Metrics& metrics) const override;
  std::int64_t picture_samples() const override { return 1000; }
  // The first images that are read wrongly, each with its label and what it was taken for.
  std::vector<Picture> pictures(const Batch& batch, std::int64_t iteration) const override;
  Settings settings() const override;

 private:
  VitOptions vit_;
  ImagesInfo info_;
  const Parallel& parallel_;
  std::unique_ptr<Parameters> parameters_;  // the network refers to it
  std::unique_ptr<ClassifierNetwork> network_;
  Tensor mean_, std_;  // [1] fp64
};

// What Classifier::settings stored; Error for anything else.
ImagesInfo images_info_from(const Settings& settings);
bool describes_images(const Settings& settings);

}  // namespace isobar
