// The fields of a forecast and its training: options of the config.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/fields/latitude.h"
#include "engine/keys.h"
#include "kernels/forecast_loss.h"
#include "models/forecast/rollout_options.h"

namespace isobar {

template <>
struct EnumNames<LossKind> {
  static constexpr std::array names{"relative_l2", "weighted_mse", "relative_l2_weighted"};
};

// A size without a value is taken from the data.
struct ForecastOptions {
  std::optional<std::array<std::int64_t, 2>> img_size = std::array<std::int64_t, 2>{360, 720};
  std::optional<bool> pad_grid = false;
  std::optional<std::int64_t> n_in_channels = 20, n_out_channels = 20;
  bool predict_change = false;
  std::optional<bool> time_features = false;
  std::optional<std::vector<std::string>> channel_names;
  // The roles of variables. Without `channels`: the first n_out_channels are forecast, the rest are forcings.
  std::optional<std::vector<std::string>> channels, forcing_channels, diagnostic_channels, computed_channels;
  std::optional<TextMap> constant_channels;  // "FILE:VARIABLE" by name
  std::int64_t history = 0;
  std::optional<NumbersOrWords> missing;                  // by channel: a number, "mean" or "refuse"
  std::optional<std::vector<std::string>> missing_masks;  // channels whose mask is given too
  std::optional<std::vector<std::string>> accumulate;     // channels that are sums over a time step of the model
  std::optional<NumbersOrWords> transforms;               // by channel: the scale of its logarithm
  LossKind loss = LossKind::relative_l2;
  LatitudeWeights latitude_weights = LatitudeWeights::cos;
  std::optional<WeightsByName> channel_weights;  // models/forecast/channel_weights.h
  std::optional<std::vector<std::string>> picture_channels;
  RolloutOptions rollout;  // with a table of keys of its own

  KeyTable keys();

  std::int64_t height() const { return img_size->at(0); }
  std::int64_t width() const { return img_size->at(1); }
  std::int64_t pixels() const { return height() * width(); }

  // Variables that are given and forecast, that are only given, and that are only forecast.
  std::int64_t prognostics() const { return *n_out_channels - diagnostics(); }
  std::int64_t forcings() const { return *n_in_channels - prognostics(); }
  std::int64_t diagnostics() const { return diagnostic_channels ? std::ssize(*diagnostic_channels) : 0; }
  // Those of the data, in the order of FieldsInfo: the forecast ones, then the forcings.
  std::int64_t variables() const { return *n_out_channels + forcings(); }
  // Computed planes and constants, and their names in the order of an input's planes.
  std::int64_t extras() const { return std::ssize(extra_names()); }
  std::vector<std::string> extra_names() const;
  // Whether points of a channel may be missing, by its name.
  bool may_be_missing(const std::string& channel) const;
  // Whether points of a forecast channel may be missing, so that samples have a weight of their own; `names`: of the
  // variables, in the order of FieldsInfo.
  bool targets_may_be_missing(std::span<const std::string> names) const;
  // The scale of a channel's logarithm (data/fields/log_scale.h), by its name; 0: it is read as it is.
  double log_scale(const std::string& channel) const;
  // The planes of an input that a data set gives for a later step too: forcings and computed planes.
  std::int64_t given_planes() const { return forcings() + (computed_channels ? std::ssize(*computed_channels) : 0); }
  std::int64_t masks() const { return missing_masks ? std::ssize(*missing_masks) : 0; }
  // The planes of an input that the data set makes (data/fields/windows.h), without the time planes.
  std::int64_t input_planes() const { return prognostics() * (1 + history) + forcings() + extras(); }

  // If `channels` are named: sets n_in_channels, n_out_channels and channel_names from the roles, in their order.
  // Returns the keys that it changed, "n_in_channels 7, n_out_channels 6"; else "".
  std::string fill_from_roles(KeyOrigins& origins);
};

// The channels, among `names` (the forecast's variables), that validations draw: picture_channels, else the third one
// (the tutorial's choice, t2m), or the last one if there are fewer. Throws Error for a name that is not among them.
std::vector<std::size_t> pictured_channels(const ForecastOptions& options, const std::vector<std::string>& names);

}  // namespace isobar
