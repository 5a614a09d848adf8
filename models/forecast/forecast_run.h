// Forecasts of many steps, from many starts: the model's output becomes its next input.
//
// A start needs its inputs: the states that the model reads, and, of the steps between, the forcings that only the data
// give. The truth is not needed: a lead is scored where the data have it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "data/fields/step_times.h"
#include "data/fields/windows.h"
#include "models/forecast/forecaster.h"
#include "models/forecast/lead_scores.h"

namespace isobar {

// What a forecast reads. All of it must outlive the forecast.
struct ForecastSources {
  const Windows& windows;               // the planes that the model reads, and the truth
  const StepTimes& times;               // of the series of `windows`
  const FieldSeries* forcings = {};     // the forcings alone, whose steps may go beyond; null: there are none
  const StepTimes* forcing_times = {};  // of `forcings`
};

class ForecastRun {
 public:
  // steps: number K of model steps. climatology: the reference of ACC's anomalies, from FieldInput::climatology_of; or
  // undefined: no ACC. Error if the model cannot be continued,
  // or for more than 100,000 steps.
  ForecastRun(const Forecaster& forecaster, const ForecastSources& sources, std::int64_t steps,
              Tensor climatology = {});

  std::vector<std::int64_t> leads() const;  // [K] in steps of the data
  bool has_acc() const { return climatology_.defined(); }

  // Error naming channel and time if the data lack an input of a forecast from this step.
  void check_start(std::int64_t start) const;
  // Error if there is a hole in time between a start, given as the number of a step, and its last lead: step
  // start + k·dt would be later than k leads.
  void check_no_hole(std::int64_t start) const;

  // Takes the fields [n_out, LAT, LON] of the start number i, as given to run(), at lead number k, in physical units.
  using Sink = std::function<void(std::int64_t i, std::int64_t k, std::span<const float> fields)>;

  // Forecasts from these steps, which check_start() accepts; `batch` of them go through the network together. Each
  // field goes to `sink` when it is computed, so that memory does not depend on the number of leads and starts. Neither
  // fields nor scores depend on `batch`. Error if the fields of the first start do not match the statistics
  // (data/fields/first_step.h).
  void run(std::span<const std::int64_t> starts, std::int64_t batch, LeadScores& scores, const Sink& sink) const;

 private:
  // The truth of a batch of starts at a lead.
  struct Truth {
    std::vector<bool> is_there;  // [B]
    Batch batch;                 // "target" of that lead, on the device; where there is none, the states of the start
    bool is_any() const;
  };

  void check_given(std::int64_t start, std::int64_t k) const;
  std::int64_t lead(std::int64_t k) const { return (k + 1) * series_.dt(); }  // in steps of the data
  void run_batch(std::span<const std::int64_t> starts, std::int64_t first, LeadScores& scores, const Sink& sink) const;
  void give(const Tensor& forecast, std::size_t starts, std::int64_t first, std::int64_t k, const Sink& sink) const;
  Batch read_starts(std::span<const std::int64_t> starts) const;
  Tensor persistence_of(std::span<const std::int64_t> starts, const Batch& begin) const;
  Truth read_truth(std::span<const std::int64_t> starts, std::int64_t k, const Batch& first) const;
  Tensor next_input(std::span<const std::int64_t> starts, std::int64_t k, const Tensor& input, const Tensor& forecast,
                    const Batch& first, const Truth& truth) const;
  Tensor read_given(std::span<const std::int64_t> starts, std::int64_t k) const;
  Tensor time_features(std::span<const std::int64_t> starts, std::int64_t k) const;
  std::optional<std::int64_t> forcing_step(std::int64_t start, std::int64_t steps) const;
  std::string when(std::int64_t start, std::int64_t steps) const;
  std::string from(std::int64_t start) const;

  const Forecaster& forecaster_;
  const ForecastSources sources_;
  const FieldSeries& series_;
  std::int64_t steps_;
  Tensor climatology_;
};

}  // namespace isobar
