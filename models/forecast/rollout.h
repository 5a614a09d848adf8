// Forecasts of many steps: the model's output becomes its next input. Scored beside persistence at every lead time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "data/fields/windows.h"
#include "models/forecast/forecaster.h"
#include "models/forecast/scores.h"

namespace isobar {

class Rollout {
 public:
  // steps: number K of model steps. windows: the planes that the model reads, and whose series they are of; forcings of
  // later steps are those of the data. climatology: the reference of ACC's anomalies, from FieldInput::climatology_of;
  // or undefined: no ACC. Throws Error if the data have fewer steps, before memory for K steps is allocated.
  Rollout(const Forecaster& forecaster, const Windows& windows, std::int64_t steps, Tensor climatology = {});

  // Throws Error if the data have no such step, no earlier inputs of it, or no last target without a hole in time
  // between them.
  void check_start(std::int64_t start) const;

  // Forecasts from step `start` of the data, which check_start() accepts, and adds its scores. Returns
  // [K, n_out, LAT, LON] in physical units. Throws Error if the fields of the first start do not match the statistics
  // (data/fields/first_step.h).
  std::vector<float> run(std::int64_t start);

  // {"lead_steps": [...], "rmse": {name: [...]}, "persistence_rmse": {...}, "acc": {...}, "persistence_acc": {...}},
  // pooled over all starts so far, in physical units; acc only with a climatology.
  nlohmann::ordered_json scores() const;
  // The same as a table of text.
  std::string table() const;

 private:
  Batch load(std::int64_t step) const;
  std::string lead_label(std::int64_t k) const;  // "+6 h"; "+1 step" if the time step is unknown
  std::int64_t lead(std::int64_t k) const { return (k + 1) * dataset_.dt(); }  // in steps of the data

  const Forecaster& forecaster_;
  const FieldSeries& dataset_;
  Windows windows_;
  std::int64_t steps_;
  Tensor climatology_;
  std::vector<ScoreTotals> forecast_, persistence_;  // [K]
};

// Writes FILE.h5: fields [K, V, LAT, LON] fp32 of a forecast from step `start`, `lead` [K] in steps, `channel` [V]; if
// known, `units` [V] and the valid times as `time` [K]; the data's `lat` [LAT] and `lon` [LON], else `row` and
// `column`. The dimensions have these names for netCDF and xarray. The file is complete or does not exist.
void write_forecast(const std::filesystem::path& path, const std::vector<float>& fields, std::int64_t start,
                    std::int64_t steps, const std::vector<std::string>& channels, const std::vector<std::string>& units,
                    const FieldSeries& dataset);

}  // namespace isobar
