#include "models/forecast/forecaster.h"

#include "engine/ops.h"
#include "engine/tape.h"
#include "models/forecast/description.h"
#include "models/forecast/maps.h"
#include "models/forecast/metrics.h"
#include "models/forecast/scores.h"

namespace isobar {
namespace {

VitConfig vit_config(const ForecasterOptions& o, const ComputeOptions& compute) {
  const std::int64_t planes = *o.forecast.n_in_channels + (*o.forecast.time_features ? kTimeFeatures : 0);
  return {.trunk = o.vit.trunk(planes, o.forecast.height(), o.forecast.width(), compute),
          .out_channels = *o.forecast.n_out_channels,
          .zero_head = o.forecast.predict_change};
}

}  // namespace

Forecaster::Forecaster(const ForecasterOptions& options, const ComputeOptions& compute, FieldsInfo info, Device device)
    : options_(options), info_(std::move(info)), parameters_(std::make_unique<Parameters>()) {
  const ForecastOptions& forecast = options_.forecast;
  ISOBAR_CHECK(*forecast.n_out_channels <= *forecast.n_in_channels, "n_out_channels: ", *forecast.n_out_channels,
               " is more than n_in_channels, ", *forecast.n_in_channels);
  vit_ = std::make_unique<Vit>(vit_config(options_, compute), *parameters_);
  compute.allocate(*parameters_, device);
  const DType accumulator = parameters_->dtype();
  input_ = std::make_unique<FieldInput>(forecast, info_.statistics, accumulator, device);
  row_weights_ = vector_on(device, info_.row_weights, accumulator);
  if (forecast.channel_weights) channel_weights_ = vector_on(device, *forecast.channel_weights, accumulator);
}

std::vector<std::string> Forecaster::output_names() const {
  return {info_.channel_names.begin(), info_.channel_names.begin() + *options().n_out_channels};
}

Tensor Forecaster::forecast(const Tensor& input, const Context& context) const {
  const Tensor out = vit_->forward(input, context);
  return options().predict_change ? add_leading_channels(out, input) : out;
}

Tensor Forecaster::loss(const Tensor& forecast, const Tensor& target) const {
  return forecast_loss(forecast, target,
                       {.kind = options().loss, .row_weights = row_weights_, .channel_weights = channel_weights_});
}

Tensor Forecaster::loss(const Batch& batch, const Context& context) const {
  const Tensor output = forecast(input_->input_of(batch), context);
  return loss(output, input_->target_of(batch));
}

std::vector<double> Forecaster::scores(const Tensor& forecast, const Tensor& target, const Tensor& climatology) const {
  return score_sums(forecast, target, row_weights_, climatology).to_vector();
}

std::unique_ptr<Metrics> Forecaster::metrics() const {
  return std::make_unique<ForecastMetrics>(info_, *options().n_out_channels, options().pixels());
}

void Forecaster::score(const Batch& batch, Metrics& metrics) const {
  const TapeScope off(nullptr);
  auto& totals = dynamic_cast<ForecastMetrics&>(metrics);
  const Tensor input = input_->input_of(batch), target = input_->target_of(batch);
  const Tensor output = forecast(input);
  const double mean_loss = loss(output, target).item();
  totals.add(scores(output, target), mean_loss);
  if (totals.wants_persistence()) totals.add_persistence(scores(input_->persistence_of(input), target));
}

std::vector<Picture> Forecaster::pictures(const Batch& batch) const {
  const TapeScope off(nullptr);
  const std::vector<float> output = input_->to_physical(forecast(input_->input_of(batch)));
  const Tensor target = tensor_of(batch, "target").to(Device{});
  return {draw_forecast({target.data_as<float>(), static_cast<std::size_t>(target.numel())}, output, info_,
                        *options().n_out_channels, options().height(), options().width(), options_.lead_time)};
}

Settings Forecaster::settings() const {
  return settings_of(info_, options_.dt);
}

}  // namespace isobar
