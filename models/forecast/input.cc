#include "models/forecast/input.h"

#include <algorithm>
#include <limits>

#include "data/fields/calendar.h"
#include "data/fields/log_scale.h"
#include "data/fields/longitude.h"
#include "data/fields/pairs.h"
#include "engine/field_ops.h"
#include "kernels/common/run.h"
#include "kernels/elementwise.h"
#include "kernels/normalize.h"

namespace isobar {
namespace {

// Copies `count` channels of every sample.
void copy_channels(const Tensor& to, std::int64_t to_channel, const Tensor& from, std::int64_t from_channel,
                   std::int64_t count) {
  const std::int64_t batch = from.size(0), pixels = from.size(2) * from.size(3), n = count * pixels;
  if (n == 0) return;
  copy_strided(to, {to_channel * pixels, to.size(1) * pixels}, from, {from_channel * pixels, from.size(1) * pixels},
               batch, n);
}

// The first `channels` channels of every sample; `fields` itself if it has no more.
Tensor leading_channels(const Tensor& fields, std::int64_t channels) {
  if (fields.size(1) == channels) return fields;
  const Tensor out =
      Tensor::empty({fields.size(0), channels, fields.size(2), fields.size(3)}, fields.dtype(), fields.device());
  copy_channels(out, 0, fields, 0, channels);
  return out;
}

// Values of the variables in the order of an input's planes.
std::vector<double> by_input_plane(const ForecastOptions& options, const std::vector<double>& of_variables,
                                   const std::vector<double>& of_extras) {
  std::vector<double> planes;
  for (std::int64_t back = 0; back <= options.history; ++back)
    planes.insert(planes.end(), of_variables.begin(), of_variables.begin() + options.prognostics());
  planes.insert(planes.end(), of_variables.begin() + *options.n_out_channels, of_variables.end());
  planes.insert(planes.end(), of_extras.begin(), of_extras.end());
  return planes;
}

}  // namespace

Tensor vector_on(Device device, const std::vector<double>& values, DType dtype) {
  Tensor t = Tensor::empty({static_cast<std::int64_t>(values.size())}, dtype, device);
  t.set_values(values);
  return t;
}

FieldInput::FieldInput(const ForecastOptions& options, const FieldsInfo& info, RowBand rows, DType dtype, Device device,
                       const std::vector<double>& fill)
    : options_(options), statistics_(info.statistics), rows_(rows), dtype_(dtype), device_(device) {
  const std::vector<double>&means = statistics_.means, &stds = statistics_.stds;
  ISOBAR_CHECK(std::ssize(means) == options.variables() && std::ssize(info.extra_means) == options.extras(),
               "there are ", means.size(), " means for ", options.variables(), " variables, and ",
               info.extra_means.size(), " for ", options.extras(), " planes beside them");
  const auto on_device = [&](std::vector<double> values) { return vector_on(device, values, DType::fp64); };
  const auto part = [](const std::vector<double>& values, std::int64_t first, std::int64_t end) {
    return std::vector<double>(values.begin() + first, values.begin() + end);
  };
  const std::int64_t prognostics = options.prognostics(), outputs = *options.n_out_channels;
  input_ = {on_device(by_input_plane(options, means, info.extra_means)),
            on_device(by_input_plane(options, stds, info.extra_stds)),
            {}};
  target_ = {on_device(part(means, 0, outputs)), on_device(part(stds, 0, outputs)), {}};
  before_ = {on_device(part(means, prognostics, outputs)), on_device(part(stds, prognostics, outputs)), {}};
  later_ = later_scale(info, fill);
  for (std::int64_t c = 0; c < outputs; ++c)
    log_scales_.push_back(
        info.channel_names.empty() ? 0 : options.log_scale(info.channel_names[static_cast<std::size_t>(c)]));
  if (fill.empty()) {
    set_replaced_points(info);
    return;
  }
  ISOBAR_CHECK(std::ssize(fill) == options.variables(), "missing points: ", fill.size(), " values to fill ",
               options.variables(), " channels with");
  input_.fill = on_device(by_input_plane(options, fill, info.extra_means));
  for (std::int64_t c = 0; c < outputs; ++c) {
    const auto at = static_cast<std::size_t>(c);
    fills_.push_back((fill[at] - means[at]) / stds[at]);
  }
  if (options.masks() > 0) input_.masks = mask_planes(options, info);
  const auto pixels = static_cast<std::size_t>(options.pixels()),
             first = static_cast<std::size_t>(rows.first * options.width());
  for (std::size_t c = 0; c * pixels < info.never_there.size(); ++c) {
    const auto band = info.never_there.begin() + static_cast<std::ptrdiff_t>(c * pixels + first);
    never_.insert(never_.end(), band, band + rows.count * options.width());
  }
  set_replaced_points(info);
}

FieldInput::Scale FieldInput::later_scale(const FieldsInfo& info, const std::vector<double>& fill) const {
  ForecastOptions newest = options_;
  newest.history = 0;
  const auto by_plane = [&](const std::vector<double>& of_variables, const std::vector<double>& of_extras) {
    return vector_on(device_, by_input_plane(newest, of_variables, of_extras), DType::fp64);
  };
  Scale scale{by_plane(statistics_.means, info.extra_means), by_plane(statistics_.stds, info.extra_stds)};
  if (std::ssize(fill) != options_.variables()) return scale;
  scale.fill = by_plane(fill, info.extra_means);
  if (options_.masks() > 0) scale.masks = mask_planes(newest, info);
  return scale;
}

// Flags are kept only if forecasts are continued: they take as much memory as a state.
void FieldInput::set_replaced_points(const FieldsInfo& info) {
  if (!options_.rollout.continues()) return;
  const std::int64_t channels = options_.prognostics(), columns = options_.width();
  const Shape shape{channels, rows_.count, columns};
  const auto flags_of = [&](auto is_replaced) {
    std::vector<double> flags(static_cast<std::size_t>(numel_of(shape)));
    for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = is_replaced(static_cast<std::int64_t>(i)) ? 1 : 0;
    return vector_on(device_, flags, DType::i32).view(shape);
  };
  if (!never_.empty()) {
    never_flags_ = flags_of([&](std::int64_t i) { return never_[static_cast<std::size_t>(i)] != 0; });
    std::vector<double> values(static_cast<std::size_t>(numel_of(shape)));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = fills_[i / static_cast<std::size_t>(rows_.count * columns)];
    never_values_ = vector_on(device_, values, dtype_).view(shape);
  }
  const std::int64_t edge = options_.rollout.boundary_width, side = go_round(info.longitudes) ? 0 : edge;
  if (edge == 0) return;
  edge_flags_ = flags_of([&](std::int64_t i) {
    const std::int64_t row = rows_.first + i / columns % rows_.count, column = i % columns;
    return row < edge || row >= options_.height() - edge || column < side || column >= columns - side;
  });
}

// The numbers of the input's planes whose masks are given.
Tensor FieldInput::mask_planes(const ForecastOptions& options, const FieldsInfo& info) const {
  const std::int64_t states = options.prognostics() * (1 + options.history);
  std::vector<double> planes;
  for (const std::string& name : *options.missing_masks) {
    const std::int64_t variable = std::ranges::find(info.channel_names, name) - info.channel_names.begin();
    const bool is_forcing = variable >= *options.n_out_channels;
    ISOBAR_CHECK(variable < options.prognostics() || (is_forcing && variable < options.variables()),
                 "config key missing_masks names ", name, ", which is not read");
    planes.push_back(static_cast<double>(is_forcing ? states + variable - *options.n_out_channels : variable));
  }
  return vector_on(device_, planes, DType::i32);
}

std::int64_t FieldInput::planes() const {
  return input_.planes() + options_.masks() + (*options_.time_features ? kTimeFeatures : 0);
}

// The normalised fields, followed by the planes of `time` if it is defined.
Tensor FieldInput::normalised(const Tensor& fields, const Scale& scale, const Tensor& time) const {
  const std::int64_t height = rows_.count, width = options_.width();
  const std::int64_t extra = time.defined() ? kTimeFeatures : 0;
  const std::int64_t masks = scale.masks.defined() ? scale.masks.size(0) : 0;
  const Tensor y = Tensor::empty({fields.size(0), scale.planes() + masks + extra, height, width}, dtype_, device_);
  ISOBAR_RUN(device_, normalize,
             {.batch = fields.size(0),
              .channels = scale.planes(),
              .mask_count = masks,
              .extra = extra,
              .height = height,
              .width = width,
              .dtype = dtype_,
              .x = fields.data_as<float>(),
              .mean = scale.means.data_as<double>(),
              .std = scale.stds.data_as<double>(),
              .fill = scale.fill.defined() ? scale.fill.data_as<double>() : nullptr,
              .masks = masks > 0 ? scale.masks.data_as<std::int32_t>() : nullptr,
              .planes = time.defined() ? time.data_as<double>() : nullptr,
              .y = y.data()},
             current_stream());
  return y;
}

Tensor FieldInput::input_of(const Batch& batch) const {
  const Tensor& fields = samples_of(batch, "input", {input_.planes(), rows_.count, options_.width()});
  return normalised(fields, input_, *options_.time_features ? samples_of(batch, "time", {kTimeFeatures}) : Tensor());
}

Tensor FieldInput::target_of(const Batch& batch, std::int64_t step) const {
  return normalised(samples_of(batch, at_step("target", step), {target_.planes(), rows_.count, options_.width()}),
                    target_, {});
}

std::int64_t FieldInput::steps_of(const Batch& batch) {
  std::int64_t steps = 1;
  while (batch.contains(at_step("target", steps))) ++steps;
  return steps;
}

// What the data give of the input of a later step, [B, channels + forcings + planes + masks + time, LAT, LON]: the
// channels are those of the target before it, and constants those of the first input.
Tensor FieldInput::given_at(const Batch& batch, std::int64_t step) const {
  const std::int64_t height = rows_.count, width = options_.width();
  const Tensor& first = samples_of(batch, "input", {input_.planes(), height, width});
  const Tensor& channels = samples_of(batch, at_step("target", step - 1), {target_.planes(), height, width});
  const std::int64_t given = options_.given_planes();
  const std::int64_t constants = later_.planes() - options_.prognostics() - given;
  std::vector<Planes> parts{{channels, 0, options_.prognostics()}};
  if (given > 0) parts.push_back({samples_of(batch, at_step("given", step), {given, height, width}), 0, given});
  if (constants > 0) parts.push_back({first, input_.planes() - constants, constants});
  const bool is_whole = parts.size() == 1 && target_.planes() == options_.prognostics();
  return normalised(is_whole ? channels : join_planes(parts), later_,
                    *options_.time_features ? samples_of(batch, at_step("time", step), {kTimeFeatures}) : Tensor());
}

Tensor FieldInput::continued(const Tensor& before, const Tensor& forecast, const Batch& batch,
                             std::int64_t step) const {
  const std::int64_t channels = options_.prognostics(), older = channels * options_.history;
  const std::int64_t others = planes() - channels - older;  // forcings, planes and masks
  const Tensor given = others > 0 || edge_flags_.defined() ? given_at(batch, step) : Tensor();
  Tensor state = forecast.size(1) == channels ? forecast : join_planes({{forecast, 0, channels}});
  if (never_flags_.defined()) state = replace_points(state, never_values_, never_flags_);
  if (edge_flags_.defined()) state = replace_points(state, leading_channels(given, channels), edge_flags_);
  std::vector<Planes> parts{{state, 0, channels}};
  if (older > 0) parts.push_back({before, 0, older});
  if (others > 0) parts.push_back({given, channels, others});
  return parts.size() == 1 ? state : join_planes(parts);
}

// On the host: forecasts are copied there to be written anyway.
Tensor FieldInput::with_never_there(const Tensor& forecast, bool filled) const {
  if (never_.empty()) return forecast;
  std::vector<double> values = forecast.to_vector();
  ISOBAR_CHECK(values.size() % never_.size() == 0, "a forecast of ", to_string(forecast.shape()), " has not the ",
               never_.size(), " points of the model");
  const std::size_t pixels = never_.size() / fills_.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t point = i % never_.size();  // of a sample
    if (never_[point] != 0) values[i] = filled ? fills_[point / pixels] : std::numeric_limits<double>::quiet_NaN();
  }
  Tensor out = Tensor::empty(forecast.shape(), forecast.dtype(), device_);
  out.set_values(values);
  return out;
}

Tensor FieldInput::persistence_of(const Tensor& input, const Batch& batch) const {
  if (options_.diagnostics() == 0) return leading_channels(input, *options_.n_out_channels);
  const Tensor before =
      normalised(samples_of(batch, "before", {before_.planes(), rows_.count, options_.width()}), before_, {});
  const Tensor out = Tensor::empty({input.size(0), target_.planes(), input.size(2), input.size(3)}, dtype_, device_);
  copy_channels(out, 0, input, 0, options_.prognostics());
  copy_channels(out, options_.prognostics(), before, 0, before_.planes());
  return out;
}

Tensor FieldInput::climatology_of(std::span<const double> time_means) const {
  const auto plane = static_cast<std::size_t>(rows_.count * options_.width());
  const auto before = static_cast<std::size_t>(rows_.first * options_.width());
  std::vector<double> normalised(static_cast<std::size_t>(*options_.n_out_channels) * plane);
  for (std::size_t i = 0; i < normalised.size(); ++i) {
    const std::size_t channel = i / plane, at = channel * static_cast<std::size_t>(options_.pixels()) + before;
    normalised[i] = (time_means[at + i % plane] - statistics_.means[channel]) / statistics_.stds[channel];
  }
  return vector_on(device_, normalised, dtype_).view({*options_.n_out_channels, rows_.count, options_.width()});
}

void FieldInput::undo_transforms(std::span<float> fields, std::int64_t batch) const {
  const std::size_t pixels = fields.size() / (static_cast<std::size_t>(batch) * log_scales_.size());
  for (std::size_t plane = 0; plane * pixels < fields.size(); ++plane) {
    const double scale = log_scales_[plane % log_scales_.size()];
    if (scale > 0) from_log_scale(fields.subspan(plane * pixels, pixels), scale);
  }
}

std::vector<float> FieldInput::to_physical(const Tensor& forecast) const {
  const Tensor fields = Tensor::empty(forecast.shape(), DType::fp32, device_);
  ISOBAR_RUN(device_, denormalize,
             {.batch = forecast.size(0),
              .channels = forecast.size(1),
              .height = forecast.size(2),
              .width = forecast.size(3),
              .dtype = forecast.dtype(),
              .x = forecast.data(),
              .mean = target_.means.data_as<double>(),
              .std = target_.stds.data_as<double>(),
              .y = fields.data_as<float>()},
             current_stream());
  const Tensor host = fields.to(Device{});
  std::vector<float> physical{host.data_as<float>(), host.data_as<float>() + host.numel()};
  undo_transforms(physical, forecast.size(0));
  return physical;
}

}  // namespace isobar
