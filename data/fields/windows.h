// What a sample holds of a series: the planes that a network reads at a step, and those that it forecasts, of one step
// ahead or of several.
//
// Channels are given and forecast. Forcings are given only, from the data at the time of the input; computed planes and
// constants are given as well. Diagnostics are forecast only. The planes of an input, in this order:
//
//   channels at t, at t - dt, ..., at t - history·dt;  forcings;  computed planes;  constants
//
// Those of a target: channels and diagnostics at t + dt. If a forecast is continued, its next input has the forecast's
// channels, and planes that only the data give: forcings and computed planes of the later time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/fields/computed_planes.h"
#include "data/fields/constants.h"
#include "data/fields/field_series.h"

namespace isobar {

struct WindowOptions {
  // Numbers of the series' channels. No channels: all of them, with no other roles.
  std::vector<std::int64_t> channels = {}, forcings = {}, diagnostics = {};
  std::int64_t history = 0;  // earlier inputs of the channels
  std::shared_ptr<const ComputedPlanes> computed = {};
  std::vector<ConstantField> constants = {};
};

class Windows {
 public:
  // `series` must outlive it.
  explicit Windows(const FieldSeries& series, WindowOptions options = {});

  const FieldSeries& series() const { return series_; }
  const WindowOptions& options() const { return options_; }
  std::int64_t input_planes() const;
  std::int64_t target_planes() const { return static_cast<std::int64_t>(target_.size()); }

  // Whether the inputs of step `first` and the targets of `steps` steps exist, without a hole in time between them,
  // within the range.
  bool has_window(std::int64_t first, std::int64_t steps = 1) const;
  // Whether the inputs of `step` exist, within the range.
  bool has_inputs(std::int64_t step) const;

  // [input_planes(), rows.count, LON] and [target_planes(), rows.count, LON], in the data's units. Error naming file,
  // step and channel for a hole in a field. Thread-safe.
  void read_input(std::int64_t step, RowBand rows, float* out) const;
  void read_target(std::int64_t step, RowBand rows, float* out) const;  // of the step itself: t + dt
  // [given_planes(), rows.count, LON]: forcings and computed planes at the time of the step.
  std::int64_t given_planes() const;
  void read_given(std::int64_t step, RowBand rows, float* out) const;
  // [diagnostics(), rows.count, LON] of the step, which no input has: a persistence forecast needs them.
  std::int64_t diagnostics() const { return static_cast<std::int64_t>(options_.diagnostics.size()); }
  void read_diagnostics(std::int64_t step, RowBand rows, float* out) const;

 private:
  const FieldSeries& series_;
  WindowOptions options_;
  std::vector<std::int64_t> target_;  // channels and diagnostics
};

}  // namespace isobar
