#include "models/forecast/input.h"

#include "data/fields/calendar.h"
#include "kernels/elementwise.h"
#include "kernels/normalize.h"

namespace isobar {
namespace {

// The first `channels` channels of every sample; `fields` itself if it has no more.
Tensor leading_channels(const Tensor& fields, std::int64_t channels) {
  if (fields.size(1) == channels) return fields;
  const std::int64_t batch = fields.size(0), from = fields.numel() / batch, to = from / fields.size(1) * channels;
  const Tensor out = Tensor::empty({batch, channels, fields.size(2), fields.size(3)}, fields.dtype(), fields.device());
  copy_strided(out, {0, to}, fields, {0, from}, batch, to);
  return out;
}

}  // namespace

Tensor vector_on(Device device, const std::vector<double>& values, DType dtype) {
  Tensor t = Tensor::empty({static_cast<std::int64_t>(values.size())}, dtype, device);
  t.set_values(values);
  return t;
}

FieldInput::FieldInput(const ForecastOptions& options, const Statistics& statistics, RowBand rows, DType dtype,
                       Device device, const std::vector<double>& fill)
    : options_(options),
      statistics_(statistics),
      rows_(rows),
      dtype_(dtype),
      device_(device),
      means_(vector_on(device, statistics.means, DType::fp64)),
      stds_(vector_on(device, statistics.stds, DType::fp64)) {
  if (fill.empty()) return;
  ISOBAR_CHECK(std::ssize(fill) == *options_.n_in_channels, "missing points: ", fill.size(), " values to fill ",
               *options_.n_in_channels, " channels with");
  fill_ = vector_on(device, fill, DType::fp64);
}

std::int64_t FieldInput::planes() const {
  return *options_.n_in_channels + (*options_.time_features ? kTimeFeatures : 0);
}

// The normalised fields of that name, followed by the planes of `time` if it is defined; `fill` may be undefined too.
Tensor FieldInput::normalised(const Batch& batch, const char* name, const Tensor& time, const Tensor& fill) const {
  const std::int64_t channels = *options_.n_in_channels, height = rows_.count, width = options_.width();
  const std::int64_t extra = time.defined() ? kTimeFeatures : 0;
  const Tensor& fields = samples_of(batch, name, {channels, height, width});
  const Tensor y = Tensor::empty({fields.size(0), channels + extra, height, width}, dtype_, device_);
  ISOBAR_RUN(device_, normalize,
             {.batch = fields.size(0),
              .channels = channels,
              .extra = extra,
              .height = height,
              .width = width,
              .dtype = dtype_,
              .x = fields.data_as<float>(),
              .mean = means_.data_as<double>(),
              .std = stds_.data_as<double>(),
              .fill = fill.defined() ? fill.data_as<double>() : nullptr,
              .planes = time.defined() ? time.data_as<double>() : nullptr,
              .y = y.data()},
             current_stream());
  return y;
}

Tensor FieldInput::input_of(const Batch& batch) const {
  return normalised(batch, "input", *options_.time_features ? samples_of(batch, "time", {kTimeFeatures}) : Tensor(),
                    fill_);
}

Tensor FieldInput::target_of(const Batch& batch) const {
  return leading_channels(normalised(batch, "target", {}, {}), *options_.n_out_channels);
}

Tensor FieldInput::input_after(const Tensor& forecast, std::span<const double> time_features) const {
  ISOBAR_CHECK(*options_.n_out_channels == *options_.n_in_channels, "n_out_channels: a forecast of ",
               *options_.n_out_channels, " channels cannot be continued by a model that needs ",
               *options_.n_in_channels);
  ISOBAR_CHECK(!forecast.tracked(), "a forecast that is continued passes no gradient back: it must not be recorded");
  if (!*options_.time_features) return forecast;
  const std::int64_t batch = forecast.size(0), from = forecast.numel() / batch;
  const std::int64_t plane = rows_.count * options_.width();
  const Tensor input = Tensor::empty({batch, planes(), forecast.size(2), forecast.size(3)}, forecast.dtype(), device_);
  const std::int64_t to = input.numel() / batch;
  copy_strided(input, {0, to}, forecast, {0, from}, batch, from);
  for (std::int64_t b = 0; b < batch; ++b) {
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

Tensor FieldInput::persistence_of(const Tensor& input) const {
  return leading_channels(input, *options_.n_out_channels);
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

std::vector<float> FieldInput::to_physical(const Tensor& forecast) const {
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
