#include "models/forecast/forecaster.h"

#include "data/era5/calendar.h"
#include "kernels/elementwise.h"
#include "kernels/forecast_scores.h"
#include "kernels/normalize.h"

namespace isobar {
namespace {

DType activation_of(const Config& config) {
  switch (config.amp_mode) {
    case AmpMode::bf16:
      return DType::bf16;
    case AmpMode::fp16:
      return DType::fp16;
    case AmpMode::none:
      break;
  }
  return config.dtype == ArithmeticType::fp64 ? DType::fp64 : DType::fp32;
}

Tensor vector_on(Device device, const std::vector<double>& values, DType dtype) {
  Tensor t = Tensor::empty({static_cast<std::int64_t>(values.size())}, dtype, device);
  t.set_values(values);
  return t;
}

VitConfig vit_config(const Config& config) {
  return {.height = config.img_size[0],
          .width = config.img_size[1],
          .patch = config.patch_size,
          .in_channels = config.n_in_channels + (config.time_features ? kTimeFeatures : 0),
          .out_channels = config.n_out_channels,
          .embed = config.embed_dim,
          .depth = config.depth,
          .heads = config.num_heads,
          .dropout = config.dropout,
          .zero_head = config.predict_change,
          .recompute = config.recompute,
          .tf32 = config.tf32};
}

}  // namespace

Forecaster::Forecaster(const Config& config, Grid grid, Device device)
    : config_(config), grid_(std::move(grid)), device_(device), parameters_(std::make_unique<Parameters>()) {
  ISOBAR_CHECK(config.n_out_channels <= config.n_in_channels, "n_out_channels: ", config.n_out_channels,
               " is more than n_in_channels, ", config.n_in_channels);
  const DType activation = activation_of(config);
  ISOBAR_CHECK(activation != DType::fp64 || device.kind == DeviceKind::cpu, "dtype: fp64 runs on the CPU only");
  vit_ = std::make_unique<Vit>(vit_config(config), *parameters_);
  parameters_->allocate(activation, device, static_cast<std::uint64_t>(config.seed));
  const DType accumulator = parameters_->dtype();
  means_ = vector_on(device, grid_.statistics.means, DType::fp64);
  stds_ = vector_on(device, grid_.statistics.stds, DType::fp64);
  row_weights_ = vector_on(device, grid_.row_weights, accumulator);
  if (config.channel_weights) channel_weights_ = vector_on(device, *config.channel_weights, accumulator);
}

std::vector<std::string> Forecaster::output_names() const {
  return {grid_.channel_names.begin(), grid_.channel_names.begin() + config_.n_out_channels};
}

// The tensor of a batch, whose samples must have that shape.
const Tensor& Forecaster::checked(const Batch& batch, const std::string& name, Shape sample) const {
  const Tensor& tensor = tensor_of(batch, name);
  sample.insert(sample.begin(), batch_size(batch));
  ISOBAR_CHECK(tensor.shape() == sample, "the data set's ", name, " has the shape ", to_string(tensor.shape()),
               ", but the model needs ", to_string(sample));
  return tensor;
}

Tensor Forecaster::input_of(const Batch& batch) const {
  const std::int64_t channels = config_.n_in_channels, height = config_.img_size[0], width = config_.img_size[1];
  const Tensor& fields = checked(batch, "input", {channels, height, width});
  const Tensor time = config_.time_features ? checked(batch, "time", {kTimeFeatures}) : Tensor();
  const std::int64_t extra = config_.time_features ? kTimeFeatures : 0;
  Tensor input = Tensor::empty({fields.size(0), channels + extra, height, width}, parameters_->dtype(), device_);
  ISOBAR_RUN(device_, normalize,
             {.batch = fields.size(0),
              .channels = channels,
              .extra = extra,
              .height = height,
              .width = width,
              .dtype = input.dtype(),
              .x = fields.data_as<float>(),
              .mean = means_.data_as<double>(),
              .std = stds_.data_as<double>(),
              .planes = time.defined() ? time.data_as<double>() : nullptr,
              .y = input.data()},
             current_stream());
  return input;
}

Tensor Forecaster::target_of(const Batch& batch) const {
  const std::int64_t channels = config_.n_in_channels, height = config_.img_size[0], width = config_.img_size[1];
  const Tensor& fields = checked(batch, "target", {channels, height, width});
  Tensor target = Tensor::empty(fields.shape(), parameters_->dtype(), device_);
  ISOBAR_RUN(device_, normalize,
             {.batch = fields.size(0),
              .channels = channels,
              .height = height,
              .width = width,
              .dtype = target.dtype(),
              .x = fields.data_as<float>(),
              .mean = means_.data_as<double>(),
              .std = stds_.data_as<double>(),
              .y = target.data()},
             current_stream());
  return leading_channels(target, config_.n_out_channels);
}

// The first `channels` of every sample; fields itself when it has no more.
Tensor Forecaster::leading_channels(const Tensor& fields, std::int64_t channels) const {
  if (fields.size(1) == channels) return fields;
  const std::int64_t batch = fields.size(0), from = fields.numel() / batch, to = channels * pixels();
  Tensor out = Tensor::empty({batch, channels, fields.size(2), fields.size(3)}, fields.dtype(), device_);
  for (std::int64_t b = 0; b < batch; ++b) out.slice(b * to, {to}).copy_from(fields.slice(b * from, {to}));
  return out;
}

Tensor Forecaster::input_after(const Tensor& forecast, std::span<const double> time_features) const {
  ISOBAR_CHECK(config_.n_out_channels == config_.n_in_channels, "n_out_channels: a forecast of ",
               config_.n_out_channels, " channels cannot be continued by a model that needs ", config_.n_in_channels);
  ISOBAR_CHECK(!forecast.tracked(), "a forecast that is continued passes no gradient back: it must not be recorded");
  if (!config_.time_features) return forecast;
  const std::int64_t batch = forecast.size(0), from = forecast.numel() / batch, plane = pixels();
  Tensor input = Tensor::empty({batch, config_.n_in_channels + kTimeFeatures, forecast.size(2), forecast.size(3)},
                               forecast.dtype(), device_);
  const std::int64_t to = input.numel() / batch;
  for (std::int64_t b = 0; b < batch; ++b) {
    input.slice(b * to, {from}).copy_from(forecast.slice(b * from, {from}));
    for (std::int64_t e = 0; e < kTimeFeatures; ++e) {
      const Tensor where = input.slice(b * to + from + e * plane, {plane});
      ISOBAR_RUN(device_, fill,
                 {.n = plane,
                  .dtype = where.dtype(),
                  .value = time_features[static_cast<std::size_t>(b * kTimeFeatures + e)],
                  .y = where.data()},
                 current_stream());
    }
  }
  return input;
}

Tensor Forecaster::forecast(const Tensor& input, const VitMode& mode) const {
  const Tensor out = vit_->forward(input, mode);
  return config_.predict_change ? add_leading_channels(out, input) : out;
}

Tensor Forecaster::loss(const Tensor& forecast, const Tensor& target) const {
  return forecast_loss(forecast, target,
                       {.kind = config_.loss, .row_weights = row_weights_, .channel_weights = channel_weights_});
}

std::vector<double> Forecaster::scores(const Tensor& forecast, const Tensor& target, const Tensor& climatology) const {
  const Tensor out = Tensor::empty({forecast.size(0), forecast.size(1), 4}, DType::fp64, device_);
  ISOBAR_RUN(device_, forecast_scores,
             {.batch = forecast.size(0),
              .channels = forecast.size(1),
              .height = forecast.size(2),
              .width = forecast.size(3),
              .dtype = forecast.dtype(),
              .pred = forecast.data(),
              .target = target.data(),
              .row_weights = row_weights_.data(),
              .climatology = climatology.defined() ? climatology.data() : nullptr,
              .out = out.data_as<double>()},
             current_stream());
  return out.to_vector();
}

Tensor Forecaster::persistence_of(const Tensor& input) const {
  return leading_channels(input, config_.n_out_channels);
}

Tensor Forecaster::climatology_of(std::span<const double> time_means) const {
  std::vector<double> normalised(static_cast<std::size_t>(config_.n_out_channels * pixels()));
  for (std::size_t i = 0; i < normalised.size(); ++i) {
    const std::size_t channel = i / static_cast<std::size_t>(pixels());
    normalised[i] = (time_means[i] - grid_.statistics.means[channel]) / grid_.statistics.stds[channel];
  }
  return vector_on(device_, normalised, parameters_->dtype())
      .view({config_.n_out_channels, config_.img_size[0], config_.img_size[1]});
}

std::vector<float> Forecaster::to_physical(const Tensor& forecast) const {
  const Tensor fields = Tensor::empty(forecast.shape(), DType::fp32, device_);
  ISOBAR_RUN(device_, denormalize,
             {.batch = forecast.size(0),
              .channels = forecast.size(1),
              .height = forecast.size(2),
              .width = forecast.size(3),
              .dtype = forecast.dtype(),
              .x = forecast.data(),
              .mean = means_.data_as<double>(),
              .std = stds_.data_as<double>(),
              .y = fields.data_as<float>()},
             current_stream());
  const Tensor host = fields.to(Device{});
  return {host.data_as<float>(), host.data_as<float>() + host.numel()};
}

}  // namespace isobar
