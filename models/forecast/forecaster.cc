#include "models/forecast/forecaster.h"

#include <algorithm>

#include "comm/sharded_axis.h"
#include "data/fields/log_scale.h"
#include "engine/field_ops.h"
#include "engine/ops.h"
#include "engine/tape.h"
#include "models/forecast/description.h"
#include "models/forecast/maps.h"
#include "models/forecast/metrics.h"
#include "models/forecast/scores.h"
#include "models/metrics_of.h"

namespace isobar {

namespace {

// What missing points of each variable are taken for, in its unit; empty if none may be missing.
std::vector<double> fills_of(const ForecastOptions& options, const FieldsInfo& info) {
  std::vector<double> fills = info.statistics.means;
  bool has_missing = false;
  for (std::size_t c = 0; c < info.channel_names.size(); ++c) {
    if (!options.may_be_missing(info.channel_names[c])) continue;
    has_missing = true;
    if (const auto* const number = std::get_if<double>(&options.missing->at(info.channel_names[c]))) fills[c] = *number;
  }
  return has_missing ? fills : std::vector<double>();
}

}  // namespace

Forecaster::Forecaster(const ForecasterOptions& options, const ComputeOptions& compute, FieldsInfo info, Device device,
                       const Parallel& parallel)
    : options_(options),
      info_(std::move(info)),
      masked_(options_.forecast.targets_may_be_missing(info_.channel_names)),
      parallel_(parallel),
      parameters_(std::make_unique<Parameters>()) {
  const ForecastOptions& forecast = options_.forecast;
  ISOBAR_CHECK(forecast.prognostics() <= *forecast.n_in_channels, "n_out_channels: ", *forecast.n_out_channels,
               " is more than n_in_channels, ", *forecast.n_in_channels);
  network_ =
      make_network(*options_.network, network_ports(forecast, *options_.network), {*parameters_, compute, parallel});
  compute.allocate(*parameters_, device, parallel.bucket_plan());
  const DType accumulator = parameters_->dtype();
  padding_ = std::make_unique<GridPadding>(forecast, info_.longitudes, *network_);
  const Part rows = padding_->rows();
  input_ = std::make_unique<FieldInput>(forecast, info_, RowBand{rows.begin, rows.size()}, accumulator, device,
                                        fills_of(forecast, info_));
  ISOBAR_CHECK(std::ssize(info_.row_weights) == forecast.height(), "row weights: ", info_.row_weights.size(), " for ",
               forecast.height(), " rows");
  const auto weights = info_.row_weights.begin();
  row_weights_ = vector_on(device, {weights + rows.begin, weights + rows.end}, accumulator);
  if (forecast.channel_weights) channel_weights_ = vector_on(device, *forecast.channel_weights, accumulator);
}

std::vector<std::string> Forecaster::output_names() const {
  return {info_.channel_names.begin(), info_.channel_names.begin() + *options().n_out_channels};
}

Tensor Forecaster::forecast(const Tensor& input, const Pass& pass) const {
  const Tensor out = padding_->cut((*network_)(padding_->pad(input), pass));
  return options().predict_change ? add_leading_channels(out, input, options().prognostics()) : out;
}

Tensor Forecaster::loss_of(const Tensor& forecast, const Tensor& target, std::int64_t patch) const {
  return forecast_loss(forecast, target,
                       {.kind = options().loss,
                        .masked = masked_,
                        .row_weights = row_weights_,
                        .channel_weights = channel_weights_,
                        .whole_height = options().height(),
                        .add_up = [this](const Tensor& sums) { parallel_.cp.all_reduce(sums); },
                        .patch = patch});
}

Tensor Forecaster::loss(const Tensor& forecast, const Tensor& target) const {
  return loss_of(forecast, target, 0);
}

// If no op needs whole fields, the loss is computed in the order of the head's patches, which saves three passes over
// the forecast.
Tensor Forecaster::loss(const Batch& batch, const Pass& pass) const {
  const Tensor input = input_->input_of(batch);
  const bool on_fields = options().predict_change || padding_->adds_points();
  const Tensor output = on_fields ? forecast(input, pass) : network_->in_patches(input, pass);
  return loss_of(output, input_->target_of(batch), on_fields ? 0 : network_->patch());
}

// Whether a sample with so many points of each channel has a weight: W of kernels/forecast_loss.h is not 0, as no row's
// weight is.
bool Forecaster::has_weight(std::span<const std::int32_t> points) const {
  const bool weighs_channels = options().loss == LossKind::relative_l2_weighted && options().channel_weights;
  for (std::size_t c = 0; c < points.size(); ++c)
    if (points[c] > 0 && !(weighs_channels && options().channel_weights->at(c) == 0)) return true;
  return false;
}

double Forecaster::weight(const Batch& batch) const {
  if (counts_samples()) return Task::weight(batch);
  const Tensor& points = samples_of(batch, "points", {*options().n_out_channels});
  std::vector<double> bands(static_cast<std::size_t>(points.size(0)), 1.0);  // of each sample, those with weight
  if (holds_values(points.device())) {
    const Tensor host = points.to(Device{});
    const auto outputs = static_cast<std::size_t>(host.size(1));
    for (std::size_t b = 0; b < bands.size(); ++b)
      bands[b] = has_weight({host.data_as<std::int32_t>() + b * outputs, outputs}) ? 1 : 0;
  }
  if (!bands.empty()) parallel_.cp.all_reduce(bands);
  return static_cast<double>(std::ranges::count_if(bands, [](double count) { return count > 0; }));
}

std::vector<double> Forecaster::scores(const Tensor& forecast, const Tensor& target, const Tensor& climatology) const {
  const Tensor sums = score_sums(forecast, target, row_weights_, climatology, masked_);
  parallel_.cp.all_reduce(sums);  // before a root of the sums is taken
  return sums.to_vector();
}

std::unique_ptr<Metrics> Forecaster::metrics() const {
  return std::make_unique<ForecastMetrics>(info_, *options().n_out_channels, options().pixels(), masked_);
}

void Forecaster::score(const Batch& batch, Metrics& metrics) const {
  const TapeScope off(nullptr);
  auto& totals = metrics_of<ForecastMetrics>(metrics);
  const Tensor input = input_->input_of(batch), target = input_->target_of(batch);
  const Tensor output = forecast(input);
  const double mean_loss = loss(output, target).item();
  totals.add(scores(output, target), mean_loss, weight(batch));
  if (totals.needs_persistence()) totals.add_persistence(scores(input_->persistence_of(input, batch), target));
}

std::optional<RowBand> Forecaster::band() const {
  if (parallel_.cp.size() == 1) return std::nullopt;
  const Part rows = padding_->rows();
  return RowBand{rows.begin, rows.size()};
}

// Gathers the bands of all ranks, [B, V, rows, LON] each: [B, V, LAT, LON].
Tensor Forecaster::whole_grid(const Tensor& band) const {
  if (parallel_.cp.size() == 1) return band;
  const std::int64_t planes = band.size(0) * band.size(1), width = band.size(3);
  const std::int64_t network_rows = network_->ports().in[1];
  const ShardedAxis rows =
      ShardedAxis(network_rows, parallel_.cp.size(), network_->row_multiple()).cut_at(options().height());
  return gather_axis(band.view({planes * band.size(2), width}), planes, rows, parallel_.cp)
      .view({band.size(0), band.size(1), options().height(), width});
}

std::vector<Picture> Forecaster::pictures(const Batch& batch, std::int64_t iteration) const {
  const TapeScope off(nullptr);
  const Tensor normalised = whole_grid(forecast(input_->input_of(batch)));
  const Tensor read = whole_grid(tensor_of(batch, "target")).to(Device{});
  if (parallel_.model.rank() != 0) return {};
  const std::vector<float> output = input_->to_physical(normalised);
  std::vector<float> target(read.data_as<float>(), read.data_as<float>() + read.numel());
  input_->undo_transforms(target, read.size(0));
  FieldsInfo shown = info_;
  for (std::string& unit : shown.units) unit = unit_of_log_scale(unit);
  std::vector<Picture> maps;
  for (const std::size_t channel : pictured_channels(options(), output_names()))
    maps.push_back(draw_forecast(target, output, shown, channel, options().height(), options().width(),
                                 {options_.lead_time, options_.valid_time, iteration}));
  return maps;
}

Settings Forecaster::settings() const {
  return settings_of(info_, options_.dt);
}

}  // namespace isobar
