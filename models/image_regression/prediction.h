// What a regression computes of images: the dataset `target` [N, C', H, W].
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/images/image_pairs.h"
#include "models/network.h"
#include "models/prediction.h"
#include "models/regression/regressor.h"

namespace isobar {

class ImagePrediction : public OpenedPrediction {
 public:
  // trained: of the pairs that the network was trained on. Error, with both sizes, if the images have other channels,
  // and if the network does not take their height and width.
  ImagePrediction(std::shared_ptr<const NetworkRecipe> network, const PairSizes& trained,
                  std::unique_ptr<const ImagePairs> images);

  std::string dataset() const override { return "target"; }
  Shape shape() const override;
  std::vector<std::string> units() const override { return images_->target_units(); }
  std::vector<std::string> sentences() const override;
  std::string missing_target() const override { return images_->sizes().out_channels > 0 ? "" : "'target'"; }
  const Dataset& parts() const override { return *images_; }
  Task& make_task(const ComputeOptions& compute, Device device) override;
  std::vector<PredictedBox> compute(std::span<const std::int64_t> parts, const Batch& batch,
                                    Metrics* metrics) const override;

 private:
  const std::shared_ptr<const NetworkRecipe> network_;
  const std::unique_ptr<const ImagePairs> images_;
  const Ports ports_;
  std::unique_ptr<Regressor> task_;
};

}  // namespace isobar
