// Forecasts of many steps: the model's output becomes its next input. Scored beside persistence at every lead time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/era5/era5.h"
#include "models/forecast/forecaster.h"
#include "models/forecast/scores.h"

namespace isobar {

class Rollout {
 public:
  // steps: model steps, K. climatology: what ACC's anomalies are taken from, of FieldInput::climatology_of, or
  // undefined for no ACC. More than one step needs a model whose output channels are its input channels. Throws Error
  // where the data have fewer steps, before anything is made of that size.
  Rollout(const Forecaster& forecaster, const Era5Dataset& dataset, std::int64_t steps, Tensor climatology = {});

  // Throws Error where the data have no such step, the last target is not in the file of `start`, or a hole in time
  // lies between them.
  void check_start(std::int64_t start) const;

  // Forecasts from one step of the data, which check_start() accepts, and adds its scores. Returns [K, n_out, H, W] in
  // physical units. Throws Error where the fields of the first start do not fit the statistics
  // (data/era5/first_step.h).
  std::vector<float> run(std::int64_t start);

  // {"lead_steps": [...], "rmse": {name: [...]}, "persistence_rmse": {...}, "acc": {...}, "persistence_acc": {...}},
  // pooled over all starts so far, in physical units; no acc without a climatology.
  nlohmann::ordered_json scores() const;
  // The same as a table for people.
  std::string table() const;

 private:
  Batch load(std::int64_t step) const;
  std::vector<double> time_features(std::int64_t step) const;
  std::string lead_label(std::int64_t k) const;  // "+6 h"; "+1 step" where nobody says how long a step is
  std::int64_t lead(std::int64_t k) const { return (k + 1) * dataset_.dt(); }  // in steps of the data

  const Forecaster& forecaster_;
  const Era5Dataset& dataset_;
  std::int64_t steps_;
  Tensor climatology_;
  std::vector<ScoreTotals> forecast_, persistence_;  // [K]
};

// Writes FILE.h5: fields [K, C, H, W] fp32 of a forecast from step `start`, `lead` [K] in steps, `channel` [C]; where
// they are known `units` [C], the valid times as `time` [K], and the data's `lat` [H] and `lon` [W], else `row` and
// `column`. The dimensions have these names for netCDF and xarray. The file is there whole or not at all.
void write_forecast(const std::filesystem::path& path, const std::vector<float>& fields, std::int64_t start,
                    std::int64_t steps, const std::vector<std::string>& channels, const std::vector<std::string>& units,
                    const Era5Dataset& dataset);

}  // namespace isobar
