// The scores of forecasts by lead time, pooled over starts, beside those of persistence.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "models/forecast/forecaster.h"
#include "models/forecast/scores.h"

namespace isobar {

class LeadScores {
 public:
  // leads: [K] in steps of the data. step_hours: of a step; 0: unknown. has_acc: whether the sums have a climatology.
  // `forecaster` must outlive it.
  LeadScores(const Forecaster& forecaster, std::vector<std::int64_t> leads, double step_hours, bool has_acc);

  // One start's sums at lead number k (Forecaster::scores of one sample), where it has truth.
  void add(std::int64_t k, std::span<const double> forecast, std::span<const double> persistence);
  // A start, with or without truth.
  void count_start() { ++starts_; }

  // Whether any lead of any start has truth.
  bool are_any() const;

  // {"starts": N, "lead_steps": [...], "scored_starts": [...], "rmse": {name: [...]}, "persistence_rmse": {...}, "acc":
  // {...}, "persistence_acc": {...}}, in physical units, by lead; null at a lead without truth. scored_starts: the
  // starts that have truth. acc only with a climatology.
  nlohmann::ordered_json json() const;
  // The same as a table of text.
  std::string table() const;

 private:
  std::string lead_label(std::int64_t k) const;  // "+6 h"; "+1 step" if the time step is unknown

  const Forecaster& forecaster_;
  std::vector<std::int64_t> leads_;
  double step_hours_;
  bool has_acc_;
  std::int64_t starts_ = 0;
  std::vector<std::int64_t> scored_;                 // [K]
  std::vector<ScoreTotals> forecast_, persistence_;  // [K]
};

}  // namespace isobar
