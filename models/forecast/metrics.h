// The metrics of forecasts during training: RMSE of every variable, beside that of the persistence forecast. Those of
// rollouts: after their first step, and after their last.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "models/forecast/fields_info.h"
#include "models/forecast/scores.h"
#include "models/task.h"

namespace isobar {

// A number of steps after which forecasts are scored: "24h" of a validation's lead times.
struct ScoredLead {
  std::int64_t steps = 1;  // of the model
  std::string name = {};
};

class ForecastMetrics : public Metrics {
 public:
  // Scores the first `outputs` channels of the fields, on a grid of `pixels` points; masked: some may be missing;
  // steps: of the rollouts. `info` must outlive this object.
  ForecastMetrics(const FieldsInfo& info, std::int64_t outputs, std::int64_t pixels, bool masked = false,
                  std::int64_t steps = 1);

  // Scores after each of these leads, and no loss.
  static ForecastMetrics of_leads(const FieldsInfo& info, std::int64_t outputs, std::int64_t pixels, bool masked,
                                  const std::vector<ScoredLead>& leads);

  // Adds a batch: the sums [B, outputs, 4], masked [B, outputs, 6], of kernels/forecast_scores.h after the first step,
  // the mean loss, and the number of samples that it is the mean of.
  void add(std::span<const double> forecast_sums, double mean_loss, double weight);
  void add_persistence(std::span<const double> sums) { leads_.front().persistence.add(sums); }
  // The same sums after the last one of several steps.
  void add_last(std::span<const double> forecast_sums) { last().forecast.add(forecast_sums); }
  void add_last_persistence(std::span<const double> sums) { last().persistence.add(sums); }
  // After `steps` steps, if they are one of the leads.
  void add_lead(std::int64_t steps, std::span<const double> forecast_sums);
  void add_lead_persistence(std::int64_t steps, std::span<const double> sums);
  bool has_lead(std::int64_t steps) const { return find_lead(steps) != nullptr; }
  bool is_of_leads() const { return is_of_leads_; }
  std::int64_t steps() const { return steps_; }  // of the rollouts
  // Whether this pass must still score the persistence forecast: it does not depend on weights, so one complete pass is
  // enough.
  bool needs_persistence() const { return !persistence_known_; }

  void begin() override;
  void end() override { persistence_known_ = true; }
  std::vector<std::span<double>> sums() override;
  double loss() const override { return loss_[0] / loss_[1]; }  // NaN of leads
  std::string lack() const override;
  // In metrics.jsonl: rmse, persistence_rmse; normalised; of rollouts also last_rmse, last_persistence_rmse. In
  // summary.json: val_rmse, persistence_rmse and both in the variables' units (..._physical); for a test set test_rmse,
  // test_persistence_rmse and so on; of rollouts also val_last_rmse and so on. TensorBoard: the tutorial's
  // RMSE(NAME)/valid, the mean over samples; RMSE/NAME and RMSE of persistence/NAME with the values of metrics.jsonl.
  // Of leads: lead_24h_rmse and lead_24h_persistence_rmse, in the same places.
  Report report(DataSplit split) const override;

  // [outputs], normalised, after the first step.
  std::vector<double> rmse() const { return leads_.front().forecast.rmse(); }
  std::vector<double> persistence_rmse() const { return leads_.front().persistence.rmse(); }

 private:
  // The first step, or the last one of several.
  struct Lead {
    ScoreTotals forecast, persistence;
    std::string prefix = {};  // of its figures
    std::string title = {};   // of its curves
    std::int64_t steps = 1;
  };
  const Lead* find_lead(std::int64_t steps) const;
  Lead& lead_at(std::int64_t steps);  // Error if there is none
  Lead& last();                       // Error if there is one step only
  std::vector<Figure> figures(const std::string& name, const std::vector<double>& rmse, bool physical) const;
  void add_figures(Report& report, const Lead& lead, DataSplit split) const;
  void add_curves(Report& report, const Lead& lead) const;
  std::string sentence() const;
  std::string sentence_of_leads() const;
  std::string table(const Lead& lead, const std::string& what) const;

  const FieldsInfo& info_;
  std::vector<std::string> names_;  // [outputs]
  ScoreTotals initial_;             // the initial value of a pass
  std::int64_t steps_;
  std::vector<Lead> leads_;
  std::array<double, 2> loss_{};  // the sum, and the samples that have a weight in it
  bool persistence_known_ = false;
  bool is_of_leads_ = false;
};

}  // namespace isobar
