// RMSE and ACC of a set of forecasts, from the sums of kernels/forecast_scores.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/tensor.h"

namespace isobar {

// The sums for normalised fields [B, V, LAT, LON], row weights [LAT] and a climatology [V, LAT, LON] or undefined:
// [B, V, 4] fp64, on the device. For bands of rows, the sums of all bands must be added before they go to ScoreTotals,
// which takes a root for every sample. Throws Error if shapes or dtypes do not match.
Tensor score_sums(const Tensor& forecast, const Tensor& target, const Tensor& row_weights,
                  const Tensor& climatology = {});

// Pools the sums of many samples. Use one object for a forecast, and another for persistence.
class ScoreTotals {
 public:
  ScoreTotals(std::int64_t channels, std::int64_t pixels) : channels_(channels), pixels_(pixels) {
    totals_.resize(static_cast<std::size_t>(channels * kWidth + 1));
  }

  // sums: [B, V, 4] of score_sums, of whole pictures.
  void add(std::span<const double> sums);

  std::int64_t samples() const { return static_cast<std::int64_t>(totals_.back()); }
  // √(mean over samples and grid of weight · squared error).
  std::vector<double> rmse() const;
  // The tutorial's RMSE: the mean over samples of each sample's RMSE.
  std::vector<double> mean_sample_rmse() const;
  // Anomaly correlation, uncentred, of the pooled sums.
  std::vector<double> acc() const;

  // The whole state, for a sum over ranks.
  std::span<double> raw() { return totals_; }

 private:
  static constexpr std::int64_t kWidth = 5;  // four sums and the sum of the samples' RMSEs
  double total(std::int64_t channel, std::int64_t which) const;

  std::int64_t channels_, pixels_;
  std::vector<double> totals_;  // [V, kWidth], then the number of samples
};

// The number of decimals, 0 to 9, that shows numbers up to `largest` with five digits, so that a column is aligned.
int decimals_for(double largest);

}  // namespace isobar
