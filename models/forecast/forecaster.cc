#include "models/forecast/forecaster.h"

#include <algorithm>

#include "comm/sharded_axis.h"
#include "data/fields/log_scale.h"
#include "data/fields/pairs.h"
#include "engine/conv_ops.h"
#include "engine/field_ops.h"
#include "engine/ops.h"
#include "engine/tape.h"
#include "models/forecast/channel_weights.h"
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
  if (forecast.channel_weights) {
    weights_of_channels_ = weights_of_channels(device);
    channel_weights_ = vector_on(device, weights_of_channels_, accumulator);
  }
  ISOBAR_CHECK(!masked_ || forecast.rollout.longest() == 1 || !compute.cuda_graph, "cuda_graph: a rollout of fields ",
               "with missing points weighs its steps by each batch, which a captured graph cannot");
  for (const RolloutStage& stage : forecast.rollout.stages()) {
    std::vector<double> weights = forecast.rollout.weights(stage.steps);
    std::erase(weights, 0.0);
    if (weights.size() == 1) continue;  // the loss itself
    weights_of_losses_[stage.steps] = vector_on(device, weights, accumulator).view({1, std::ssize(weights)});
  }
}

// On shapes names and statistics are not known, and no weight is read.
std::vector<double> Forecaster::weights_of_channels(Device device) const {
  const auto outputs = static_cast<std::size_t>(*options().n_out_channels);
  if (!holds_values(device)) return std::vector<double>(outputs, 1.0);
  return channel_weights_of(*options().channel_weights, std::span(info_.channel_names).first(outputs),
                            std::span(info_.statistics.stds).first(outputs), info_.change_stds);
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
  if (const std::int64_t steps = FieldInput::steps_of(batch); steps > 1) return rollout_loss(batch, pass, steps);
  const Tensor input = input_->input_of(batch);
  const bool on_fields = options().predict_change || padding_->adds_points();
  const Tensor output = on_fields ? forecast(input, pass) : network_->in_patches(input, pass);
  return loss_of(output, input_->target_of(batch), on_fields ? 0 : network_->patch());
}

// Whether a sample with so many points of each channel has a weight: W of kernels/forecast_loss.h is not 0, as no row's
// weight is.
bool Forecaster::has_weight(std::span<const std::int32_t> points) const {
  const bool weighs_channels = options().loss == LossKind::relative_l2_weighted && channel_weights_.defined();
  for (std::size_t c = 0; c < points.size(); ++c)
    if (points[c] > 0 && !(weighs_channels && weights_of_channels_[c] == 0)) return true;
  return false;
}

Forecaster::Counted Forecaster::counted(const Batch& batch) const {
  const std::int64_t steps = FieldInput::steps_of(batch);
  const auto samples = static_cast<std::size_t>(batch_size(batch)),
             outputs = static_cast<std::size_t>(*options().n_out_channels);
  std::vector<double> bands(static_cast<std::size_t>(steps) * samples, 1.0);  // of each sample, those with weight
  for (std::int64_t k = 0; k < steps; ++k) {
    const Tensor& points = samples_of(batch, at_step("points", k), {*options().n_out_channels});
    if (!holds_values(points.device())) continue;
    const Tensor host = points.to(Device{});
    for (std::size_t b = 0; b < samples; ++b)
      bands[static_cast<std::size_t>(k) * samples + b] =
          has_weight({host.data_as<std::int32_t>() + b * outputs, outputs}) ? 1 : 0;
  }
  if (!bands.empty()) parallel_.cp.all_reduce(bands);
  const std::vector<double> weights = options().rollout.weights(steps);
  Counted counted{.by_step = std::vector<double>(weights.size())};
  for (std::size_t b = 0; b < samples; ++b) {
    bool counts = false;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      const bool is_there = bands[k * samples + b] > 0;
      counted.by_step[k] += is_there ? 1 : 0;
      counts = counts || (is_there && weights[k] > 0);
    }
    counted.at_any += counts ? 1 : 0;
  }
  return counted;
}

double Forecaster::weight(const Batch& batch) const {
  return counts_samples() ? Task::weight(batch) : counted(batch).at_any;
}

// Those of the config. Where points may be missing, the loss of a step is a mean over fewer samples than count in the
// batch: a sample's loss at a step of which it has no point is 0.
std::vector<double> Forecaster::weights_of_steps(const Batch& batch) const {
  std::vector<double> weights = options().rollout.weights(FieldInput::steps_of(batch));
  if (counts_samples() || weights.size() == 1) return weights;
  const Counted counts = counted(batch);
  for (std::size_t k = 0; k < weights.size(); ++k)
    weights[k] *= counts.at_any > 0 ? counts.by_step[k] / counts.at_any : 0;
  return weights;
}

// A step that is run again in the backward pass keeps its input alone, so a rollout keeps K inputs and the activations
// of one step. The last step is not run again: its activations are used at once.
Tensor Forecaster::rollout_loss(const Batch& batch, const Pass& pass, std::int64_t steps) const {
  const RolloutOptions& rollout = options().rollout;
  const std::vector<double> of_config = rollout.weights(steps);
  std::vector<Tensor> losses;
  Tensor state = input_->input_of(batch);
  for (std::int64_t k = 0; k < steps; ++k) {
    const bool is_last = k + 1 == steps, has_loss = of_config[static_cast<std::size_t>(k)] > 0;
    // The loss, if the step has one, and the next input, if there is one.
    const auto run = [this, batch, pass = pass.step(k), k, is_last, has_loss](const std::vector<Tensor>& in) {
      const Tensor output = forecast(in[0], pass);
      std::vector<Tensor> made;
      if (has_loss) made.push_back(loss(output, input_->target_of(batch, k)));
      if (!is_last) made.push_back(input_->continued(in[0], output, batch, k + 1));
      return made;
    };
    const bool is_recorded = is_last || rollout.rollout_gradient == RolloutGradient::full;
    const TapeScope recording(is_recorded ? Tape::active() : nullptr);
    const std::vector<Tensor> made = rollout.recompute_steps && !is_last ? recompute(run, {state}) : run({state});
    if (has_loss) losses.push_back(made.front());
    if (!is_last) state = made.back();
  }
  return mean_loss_of_steps(losses, weights_of_steps(batch));
}

// The weighted mean as a product [1, K]·[K, 1].
Tensor Forecaster::mean_loss_of_steps(const std::vector<Tensor>& losses, std::vector<double> weights) const {
  if (losses.size() == 1) return losses.front();
  const Tensor row = weights_on_device(std::move(weights));
  std::vector<Tensor> columns;
  for (const Tensor& loss : losses) columns.push_back(loss.view({1, 1, 1}));
  return linear(concat_channels(columns).view({1, std::ssize(losses)}), row, {}, {.out_dtype = row.dtype()}).view({1});
}

// [1, K], those of the K steps that have a loss.
Tensor Forecaster::weights_on_device(std::vector<double> weights) const {
  const std::vector<double> of_config = options().rollout.weights(std::ssize(weights));
  if (counts_samples()) {
    const auto found = weights_of_losses_.find(std::ssize(weights));
    ISOBAR_CHECK(found != weights_of_losses_.end(), "no stage of config key rollout has ", weights.size(), " steps");
    return found->second;
  }
  std::vector<double> with_loss;
  for (std::size_t k = 0; k < weights.size(); ++k)
    if (of_config[k] > 0) with_loss.push_back(weights[k]);
  return vector_on(row_weights_.device(), with_loss, row_weights_.dtype()).view({1, std::ssize(with_loss)});
}

std::vector<double> Forecaster::scores(const Tensor& forecast, const Tensor& target, const Tensor& climatology) const {
  const Tensor sums = score_sums(forecast, target, row_weights_, climatology, masked_);
  parallel_.cp.all_reduce(sums);  // before a root of the sums is taken
  return sums.to_vector();
}

std::unique_ptr<Metrics> Forecaster::metrics() const {
  return std::make_unique<ForecastMetrics>(info_, *options().n_out_channels, options().pixels(), masked_,
                                           options().rollout.valid_steps());
}

std::unique_ptr<Metrics> Forecaster::also_metrics() const {
  if (options_.valid_leads.empty()) return nullptr;
  return std::make_unique<ForecastMetrics>(
      ForecastMetrics::of_leads(info_, *options().n_out_channels, options().pixels(), masked_, options_.valid_leads));
}

void Forecaster::score_leads(const Batch& batch, ForecastMetrics& totals) const {
  const std::int64_t steps = totals.steps();
  Tensor state = input_->input_of(batch), persistence;
  if (totals.needs_persistence()) persistence = input_->persistence_of(state, batch);  // of all steps
  for (std::int64_t k = 0; k < steps; ++k) {
    const Tensor output = forecast(state);
    if (totals.has_lead(k + 1)) {
      const Tensor target = input_->target_of(batch, k);
      totals.add_lead(k + 1, scores(output, target));
      if (persistence.defined()) totals.add_lead_persistence(k + 1, scores(persistence, target));
    }
    if (k + 1 < steps) state = input_->continued(state, output, batch, k + 1);
  }
}

void Forecaster::score(const Batch& batch, Metrics& metrics) const {
  const TapeScope off(nullptr);
  auto& totals = metrics_of<ForecastMetrics>(metrics);
  if (totals.is_of_leads()) return score_leads(batch, totals);
  const std::int64_t last = FieldInput::steps_of(batch) - 1;
  ISOBAR_CHECK(last + 1 == totals.steps(), "a batch of windows of ", last + 1, " steps is scored as ", totals.steps());
  const std::vector<double> weights = weights_of_steps(batch);
  Tensor state = input_->input_of(batch), persistence;
  if (totals.needs_persistence()) persistence = input_->persistence_of(state, batch);  // of all steps
  std::vector<double> first;
  double mean_loss = 0;
  for (std::int64_t k = 0; k <= last; ++k) {
    const Tensor target = input_->target_of(batch, k), output = forecast(state);
    const double weight = weights[static_cast<std::size_t>(k)];
    if (weight > 0) mean_loss += weight * loss(output, target).item();
    if (k == 0) {
      first = scores(output, target);
      if (persistence.defined()) totals.add_persistence(scores(persistence, target));
    } else if (k == last) {
      totals.add_last(scores(output, target));
      if (persistence.defined()) totals.add_last_persistence(scores(persistence, target));
    }
    if (k < last) state = input_->continued(state, output, batch, k + 1);
  }
  totals.add(first, mean_loss, weight(batch));
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
