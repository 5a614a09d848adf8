#include "models/regression/volume_regressor.h"

#include "engine/conv_ops.h"
#include "engine/tape.h"
#include "kernels/common/check.h"
#include "models/metrics_of.h"
#include "models/regression/pictures.h"
#include "models/regression/regressor.h"
#include "models/regression/volume_metrics.h"

namespace isobar {
namespace {

constexpr std::int64_t kVelocity = 1;  // the channel of its first component

// The middle slice of the first sample, of the channels `first` and `second`: [2, 1, H, W]. volumes: [B, D, H, W, C].
Tensor middle_slices(const Tensor& volumes, std::int64_t first, std::int64_t second) {
  const std::int64_t depth = volumes.size(1), channels = volumes.size(-1), area = volumes.size(2) * volumes.size(3);
  const std::vector<double> values = volumes.to_vector();
  std::vector<double> slices;
  for (const std::int64_t channel : {first, second})
    for (std::int64_t i = 0; i < area; ++i)
      slices.push_back(values[static_cast<std::size_t>((depth / 2 * area + i) * channels + channel)]);
  Tensor picture = Tensor::empty({2, 1, volumes.size(2), volumes.size(3)}, DType::fp32, Device{});
  picture.set_values(slices);
  return picture;
}

}  // namespace

VolumeRegressor::VolumeRegressor(const std::shared_ptr<const NetworkRecipe>& network, const ComputeOptions& compute,
                                 const Ports& ports, const VolumeObjective& objective, Device device,
                                 const Parallel& parallel)
    : ports_(ports),
      objective_(objective),
      activation_(compute.activation()),
      parameters_(std::make_unique<Parameters>()) {
  ISOBAR_CHECK(parallel.cp.size() == 1, "context parallel: volumes are read whole, and cannot be dealt over ",
               parallel.cp.size(), " ranks");
  network_ = make_network(*network, ports, {*parameters_, compute, parallel});
  compute.allocate(*parameters_, device, parallel.bucket_plan());
}

Tensor VolumeRegressor::turned(const Batch& batch, const char* name, const Shape& sample, DType dtype) const {
  const Tensor& values = samples_of(batch, name, sample);
  const bool has_vector = objective_.vectors_turn && sample[0] >= kVelocity + 3;
  return turn(values, tensor_of(batch, "turn"), has_vector ? kVelocity : -1, dtype);
}

Tensor VolumeRegressor::prediction(const Batch& batch, const Pass& pass) const {
  const DType dtype = network_->has_channels_last() ? activation_ : parameters_->dtype();
  return network_->in_channels_last(turned(batch, "input", ports_.in, dtype), pass);
}

Tensor VolumeRegressor::loss(const Batch& batch, const Pass& pass) const {
  return mean_loss(prediction(batch, pass), target_of(batch),
                   {.kind = ErrorKind::absolute, .density_weight = objective_.density_weight});
}

std::unique_ptr<Metrics> VolumeRegressor::metrics() const {
  return std::make_unique<VolumeMetrics>(ports_.in[0], ports_.out[0], objective_.density_weight);
}

void VolumeRegressor::score(const Batch& batch, Metrics& metrics) const {
  if (batch_size(batch) == 0) return;
  const TapeScope off(nullptr);
  const bool wants_input = metrics_of<VolumeMetrics>(metrics).wants_input();
  add_errors({.prediction = prediction(batch),
              .target = target_of(batch),
              .input = wants_input ? turned(batch, "input", ports_.in, parameters_->dtype()) : Tensor()},
             metrics);
}

void VolumeRegressor::add_errors(const ScoredVolumes& volumes, Metrics& metrics) const {
  auto& own = metrics_of<VolumeMetrics>(metrics);
  const Tensor& target = volumes.target;
  const auto sums_of = [&](const Tensor& values, bool with_density) {
    return error_sums(values, target, ErrorKind::absolute, with_density).to_vector();
  };
  std::vector<double> of_input;
  if (own.wants_input()) of_input = sums_of(volumes.input, false);
  own.add(sums_of(volumes.prediction, objective_.density_weight != 0), of_input, target.numel() / target.size(-1));
}

std::vector<Picture> VolumeRegressor::pictures(const Batch& batch, std::int64_t) const {
  const TapeScope off(nullptr);
  const Tensor input = turned(batch, "input", ports_.in, parameters_->dtype());
  const std::int64_t last = ports_.out[0] - 1;
  return {draw_regression({middle_slices(input, 0, std::min(last, ports_.in[0] - 1)),
                           middle_slices(prediction(batch), 0, last), middle_slices(target_of(batch), 0, last)})};
}

Settings VolumeRegressor::settings() const {
  return regression_settings(ports_);
}

}  // namespace isobar
