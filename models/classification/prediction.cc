#include "models/classification/prediction.h"

#include <algorithm>
#include <cmath>

#include "engine/tape.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// The softmax of a row of logits.
std::vector<float> probabilities_of(std::span<const double> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  std::vector<float> probabilities;
  for (const double logit : logits) probabilities.push_back(static_cast<float>(std::exp(logit - largest) / sum));
  return probabilities;
}

}  // namespace

std::vector<TensorSpec> UnlabelledImages::layout() const {
  return {{.name = "image", .shape = {1, height(), width()}}};
}

void UnlabelledImages::read(const SampleKey& key, std::span<void* const> to) const {
  const std::int64_t pixels = height() * width();
  std::copy_n(images_.values.begin() + key.sample * pixels, pixels, static_cast<float*>(to[0]));
}

std::vector<std::string> ClassPrediction::sentences() const {
  return {concat(images_->name(), ": ", images_->samples(), " images of ", trained_.height, " x ", trained_.width,
                 " to ", trained_.classes, " classes")};
}

Task& ClassPrediction::make_task(const ComputeOptions& compute, Device device) {
  task_ = std::make_unique<Classifier>(network_, compute, trained_, device);
  return *task_;
}

std::vector<PredictedBox> ClassPrediction::compute(std::span<const std::int64_t> parts, const Batch& batch,
                                                   Metrics* metrics) const {
  const TapeScope off(nullptr);
  const Batch images = to_device(batch, task_->device());
  if (metrics != nullptr) task_->score(images, *metrics);
  const std::vector<double> logits = task_->logits(images).to_vector();
  const auto classes = static_cast<std::size_t>(trained_.classes);
  std::vector<PredictedBox> boxes;
  for (std::size_t i = 0; i < parts.size(); ++i)
    boxes.push_back({.start = {parts[i], 0},
                     .count = {1, trained_.classes},
                     .values = probabilities_of(std::span(logits).subspan(i * classes, classes))});
  return boxes;
}

}  // namespace isobar
