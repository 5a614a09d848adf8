// The forecast model with all that surrounds the network: normalisation, time planes, "predict the change", the loss
// and the scores. Raw fields go in, normalised forecasts come out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/era5/statistics.h"
#include "models/config.h"
#include "models/vit/vit.h"

namespace isobar {

// What a data set tells the model: names, statistics and grid of the cropped fields.
struct Grid {
  std::vector<std::string> channel_names;     // [n_in_channels]; forecasts are of the first n_out_channels of them
  Statistics statistics;                      // of every input channel
  std::vector<double> row_weights;            // [H], mean 1: for losses and scores
  std::vector<double> latitudes, longitudes;  // degrees; empty where the files have none
  std::vector<std::string> units = {};        // [n_in_channels], "" where nobody says; or empty
  double step_hours = 0;                      // from a step of the data to the next; 0 where nobody says
};

class Forecaster {
 public:
  // Weights start from config.seed.
  Forecaster(const Config& config, Grid grid, Device device);

  const Config& config() const { return config_; }
  const Grid& grid() const { return grid_; }
  Device device() const { return device_; }
  Parameters& parameters() { return *parameters_; }
  const Parameters& parameters() const { return *parameters_; }
  std::vector<std::string> output_names() const;

  // From a batch on the device, normalised, in the parameters' dtype: [B, C + planes, H, W] and [B, n_out, H, W]. Tensors of
  // the batch (data/era5/pairs.h): "input" or "target" [B, C, H, W] fp32 as the files hold them; for the input of a model
  // with time features also "time" [B, kTimeFeatures] fp64. An error where one is missing or has another shape.
  Tensor input_of(const Batch& batch) const;
  Tensor target_of(const Batch& batch) const;
  // The input of the next step of a rollout, from a normalised forecast of every channel.
  Tensor input_after(const Tensor& forecast, std::span<const double> time_features) const;

  // [B, C + planes, H, W] -> [B, n_out, H, W], normalised.
  Tensor forecast(const Tensor& input, const VitMode& mode = {}) const;
  Tensor loss(const Tensor& forecast, const Tensor& target) const;  // [1]

  // The sums of kernels/forecast_scores.h on the host, [B, n_out, 4]. A persistence forecast is an input's leading
  // channels. climatology [n_out, H, W] normalised, or undefined.
  std::vector<double> scores(const Tensor& forecast, const Tensor& target, const Tensor& climatology = {}) const;
  Tensor persistence_of(const Tensor& input) const;  // [B, n_out, H, W]
  // time_means [C, H, W] in the data's units as the climatology that scores() takes.
  Tensor climatology_of(std::span<const double> time_means) const;

  std::vector<float> to_physical(const Tensor& forecast) const;  // [B, n_out, H, W] on the host, in the data's units

 private:
  const Tensor& checked(const Batch& batch, const std::string& name, Shape sample) const;
  std::int64_t pixels() const { return config_.img_size[0] * config_.img_size[1]; }
  Tensor leading_channels(const Tensor& fields, std::int64_t channels) const;

  Config config_;
  Grid grid_;
  Device device_;
  std::unique_ptr<Parameters> parameters_;  // the network refers to it
  std::unique_ptr<Vit> vit_;
  Tensor means_, stds_;     // [C] fp64
  Tensor row_weights_;      // [H]
  Tensor channel_weights_;  // [n_out], or undefined
};

}  // namespace isobar
