#include "models/image_regression/prediction.h"

#include <utility>

#include "engine/tape.h"
#include "kernels/common/check.h"
#include "models/metrics_of.h"
#include "models/regression/metrics.h"

namespace isobar {
namespace {

// The trained channels on the grid of these images.
Ports ports_on(const PairSizes& images, const PairSizes& trained) {
  return {.in = {trained.in_channels, images.height, images.width},
          .out = {trained.out_channels, images.height, images.width}};
}

void check_channels(const ImagePairs& images, const PairSizes& trained) {
  const PairSizes& own = images.sizes();
  ISOBAR_CHECK(own.in_channels == trained.in_channels, images.name(), " has images ", to_string(own.input()),
               ", but the network was trained on ", to_string(trained.input()), ", of ", trained.in_channels,
               trained.in_channels == 1 ? " channel" : " channels");
  ISOBAR_CHECK(own.out_channels == 0 || own.out_channels == trained.out_channels, images.name(), " has targets ",
               to_string(own.target()), ", but the network computes ", trained.out_channels,
               trained.out_channels == 1 ? " channel" : " channels");
}

void check_extents(const ImagePairs& images, const PairSizes& trained, const std::optional<Reach>& reach) {
  const PairSizes& own = images.sizes();
  const bool are_trained = own.height == trained.height && own.width == trained.width;
  ISOBAR_CHECK(reach || are_trained, images.name(), " has images of ", own.height, " x ", own.width,
               ", but the network takes those of its training alone, ", trained.height, " x ", trained.width);
  if (!reach) return;
  ISOBAR_CHECK(own.height % reach->stride == 0 && own.width % reach->stride == 0, images.name(), " has images of ",
               own.height, " x ", own.width, ", but the network takes multiples of ", reach->stride, " points");
}

}  // namespace

ImagePrediction::ImagePrediction(std::shared_ptr<const NetworkRecipe> network, const PairSizes& trained,
                                 std::unique_ptr<const ImagePairs> images)
    : network_(std::move(network)), images_(std::move(images)), ports_(ports_on(images_->sizes(), trained)) {
  check_channels(*images_, trained);
  check_extents(*images_, trained, network_->reach());
  network_->check(ports_, images_->name());
}

Shape ImagePrediction::shape() const {
  Shape shape = ports_.out;
  shape.insert(shape.begin(), images_->samples());
  return shape;
}

std::vector<std::string> ImagePrediction::sentences() const {
  return {concat(images_->name(), ": ", images_->samples(), " images ", to_string(ports_.in), " to ",
                 to_string(ports_.out))};
}

Task& ImagePrediction::make_task(const ComputeOptions& compute, Device device) {
  task_ = std::make_unique<Regressor>(network_, compute, ports_, device);
  return *task_;
}

std::vector<PredictedBox> ImagePrediction::compute(std::span<const std::int64_t> parts, const Batch& batch,
                                                   Metrics* metrics) const {
  const TapeScope off(nullptr);
  const Tensor& input = tensor_of(batch, "input");
  const std::vector<double> values = task_->prediction({{"input", input.to(task_->device())}}).to_vector();
  if (metrics != nullptr)
    metrics_of<RegressionMetrics>(*metrics).add(values, tensor_of(batch, "target").to_vector(), input.to_vector(),
                                                std::ssize(parts));
  std::vector<PredictedBox> boxes;
  auto from = values.begin();
  for (const std::int64_t part : parts) {
    PredictedBox& box = boxes.emplace_back();
    box.start = {part, 0, 0, 0};
    box.count = {1, ports_.out[0], ports_.out[1], ports_.out[2]};
    const auto to = from + numel_of(ports_.out);
    box.values.assign(from, to);
    from = to;
  }
  return boxes;
}

}  // namespace isobar
