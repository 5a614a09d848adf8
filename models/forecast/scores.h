// RMSE and ACC of a set of forecasts, from the sums that kernels/forecast_scores.h makes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/tensor.h"

namespace isobar {

// Those sums of normalised fields [B, C, H, W], of row weights [H] and a climatology [C, H, W] or undefined: [B, C, 4]
// fp64, on the device. They may be of a band of rows: the sums of all bands, added, are the whole picture's. Only those
// go to ScoreTotals, which takes a root of every sample. Throws Error where shapes or dtypes do not fit.
Tensor score_sums(const Tensor& forecast, const Tensor& target, const Tensor& row_weights,
                  const Tensor& climatology = {});

// Pools the sums of many samples. One object for a forecast, another for the persistence beside it.
class ScoreTotals {
 public:
  ScoreTotals(std::int64_t channels, std::int64_t pixels) : channels_(channels), pixels_(pixels) {
    totals_.resize(static_cast<std::size_t>(channels * kWidth + 1));
  }

  // sums [batch, C, 4] of score_sums, of whole pictures.
  void add(std::span<const double> sums);

  std::int64_t samples() const { return static_cast<std::int64_t>(totals_.back()); }
  // √(mean over samples and grid of weight times squared error).
  std::vector<double> rmse() const;
  // The tutorial's: the mean over samples of each sample's RMSE.
  std::vector<double> mean_sample_rmse() const;
  // Anomaly correlation, uncentred, of the pooled sums.
  std::vector<double> acc() const;

  // All that is held, for a sum over ranks.
  std::span<double> raw() { return totals_; }

 private:
  static constexpr std::int64_t kWidth = 5;  // four sums and the sum of the samples' RMSEs
  double total(std::int64_t channel, std::int64_t which) const;

  std::int64_t channels_, pixels_;
  std::vector<double> totals_;  // [C, kWidth], then the number of samples
};

// Decimals with which numbers up to `largest` show five digits, so that a column of them is aligned: 0 to 9.
int decimals_for(double largest);

}  // namespace isobar
