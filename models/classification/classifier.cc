#include "models/classification/classifier.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/files/json.h"
#include "engine/ops.h"
#include "engine/tape.h"
#include "kernels/common/run.h"
#include "kernels/normalize.h"
#include "models/classification/metrics.h"
#include "models/classification/mistakes.h"
#include "models/metrics_of.h"

namespace isobar {
namespace {

constexpr const char* kImages = "isobar.images";

Tensor number_on(Device device, double value) {
  Tensor t = Tensor::empty({1}, DType::fp64, device);
  t.set_values({value});
  return t;
}

}  // namespace

Ports classifier_ports(const ImagesInfo& info) {
  return {.in = {1, info.height, info.width}, .out = {info.classes}};
}

Classifier::Classifier(const std::shared_ptr<const NetworkRecipe>& network, const ComputeOptions& compute,
                       const ImagesInfo& info, Device device, const Parallel& parallel)
    : info_(info),
      parameters_(std::make_unique<Parameters>()),
      network_(make_network(*network, classifier_ports(info), {*parameters_, compute, parallel})),
      mean_(number_on(device, info.mean)),
      std_(number_on(device, info.std)) {
  compute.allocate(*parameters_, device, parallel.bucket_plan());
}

Tensor Classifier::logits(const Batch& batch, const Pass& pass) const {
  const Tensor& pixels = samples_of(batch, "image", {1, info_.height, info_.width});
  const Tensor image = Tensor::empty(pixels.shape(), parameters_->dtype(), device());
  ISOBAR_RUN(device(), normalize,
             {.batch = pixels.size(0),
              .channels = 1,
              .extra = 0,
              .height = info_.height,
              .width = info_.width,
              .dtype = image.dtype(),
              .x = pixels.data_as<float>(),
              .mean = mean_.data_as<double>(),
              .std = std_.data_as<double>(),
              .planes = nullptr,
              .y = image.data()},
             current_stream());
  return (*network_)(image, pass);
}

Tensor Classifier::loss(const Batch& batch, const Pass& pass) const {
  return cross_entropy(logits(batch, pass), tensor_of(batch, "label"));
}

double Classifier::weight(const Batch& batch) const {
  const Tensor& label = tensor_of(batch, "label");
  if (counts_samples() || !holds_values(label.device())) return Task::weight(batch);
  const std::vector<std::int32_t> labels = int_values(label);
  return static_cast<double>(std::ssize(labels) - std::ranges::count(labels, kIgnoredLabel));
}

std::unique_ptr<Metrics> Classifier::metrics() const {
  return std::make_unique<ClassificationMetrics>(info_.classes);
}

void Classifier::score(const Batch& batch, Metrics& metrics) const {
  const TapeScope off(nullptr);
  const Tensor& labels = tensor_of(batch, "label");
  const ClassPredictions predictions = class_predictions(logits(batch), labels);
  metrics_of<ClassificationMetrics>(metrics).add(predictions.row_loss.to_vector(), int_values(predictions.prediction),
                                                 int_values(labels));
}

std::vector<Picture> Classifier::pictures(const Batch& batch, std::int64_t) const {
  const TapeScope off(nullptr);
  const Tensor& labels = tensor_of(batch, "label");
  const ClassPredictions predictions = class_predictions(logits(batch), labels);
  const Tensor pixels = tensor_of(batch, "image").to(Device{});
  return {draw_mistakes({pixels.data_as<float>(), static_cast<std::size_t>(pixels.numel())}, info_.height, info_.width,
                        int_values(labels), int_values(predictions.prediction))};
}

Settings Classifier::settings() const {
  const nlohmann::ordered_json json{{"height", info_.height},
                                    {"width", info_.width},
                                    {"classes", info_.classes},
                                    {"mean", info_.mean},
                                    {"std", info_.std}};
  return {{kImages, json.dump()}};
}

bool describes_images(const Settings& settings) {
  return settings.contains(kImages);
}

ImagesInfo images_info_from(const Settings& settings) {
  try {
    const auto json = parse_json<nlohmann::json>(settings.at(kImages), kImages);
    const ImagesInfo info{.height = json.at("height"),
                          .width = json.at("width"),
                          .classes = json.at("classes"),
                          .mean = json.at("mean"),
                          .std = json.at("std")};
    ISOBAR_CHECK(info.height > 0 && info.width > 0 && info.classes > 1 && std::isfinite(info.mean) &&
                     std::isfinite(info.std) && info.std > 0,
                 kImages, " describes no images");
    return info;
  } catch (const nlohmann::json::exception&) {
    throw_error("the description of the images in the metadata is damaged");
  }
}

}  // namespace isobar
