// RMSE and ACC of a set of forecasts, from the sums of kernels/forecast_scores.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/tensor.h"

namespace isobar {

// The sums for normalised fields [B, V, LAT, LON], row weights [LAT] and a climatology [V, LAT, LON] or undefined:
// [B, V, 4] fp64, on the device. masked: a NaN of the target is a missing point, which no sum has; [B, V, 6], the last
// two are the weights of the points that are present and missing. For bands of rows, the sums of all bands must be
// added before they go to ScoreTotals, which takes a root for every sample. Throws Error if shapes or dtypes do not
// match.
Tensor score_sums(const Tensor& forecast, const Tensor& target, const Tensor& row_weights,
                  const Tensor& climatology = {}, bool masked = false);

// Pools the sums of many samples. Use one object for a forecast, and another for persistence. A channel has no score in
// a sample where all its points are missing: means over samples are then over the others. The scores of a channel that
// has none in any sample are NaN.
class ScoreTotals {
 public:
  // pixels: LAT·LON of the whole grid. masked: whether the sums are masked.
  ScoreTotals(std::int64_t channels, std::int64_t pixels, bool masked = false)
      : channels_(channels), pixels_(pixels), masked_(masked) {
    totals_.resize(static_cast<std::size_t>(channels * kWidth + 1));
  }

  // sums: [B, V, 4] of score_sums, masked [B, V, 6], of whole pictures.
  void add(std::span<const double> sums);

  // Those that have a point of some channel.
  std::int64_t samples() const { return static_cast<std::int64_t>(totals_.back()); }
  // Of each channel, over all samples, in parts of the grid's weight: pixels, for a sample without missing points.
  std::vector<double> points() const;
  // √(mean over samples and grid of weight · squared error).
  std::vector<double> rmse() const;
  // The tutorial's RMSE: the mean over samples of each sample's RMSE.
  std::vector<double> mean_sample_rmse() const;
  // Anomaly correlation, uncentred, of the pooled sums.
  std::vector<double> acc() const;

  // The whole state, for a sum over ranks.
  std::span<double> raw() { return totals_; }

 private:
  // Four sums; the sum of the samples' RMSEs; the points of all samples, by weight; the samples that have some.
  static constexpr std::int64_t kWidth = 7;
  double total(std::int64_t channel, std::int64_t which) const;
  double points_of(std::span<const double> sums) const;

  std::int64_t channels_, pixels_;
  bool masked_;
  std::vector<double> totals_;  // [V, kWidth], then samples()
};

// The number of decimals, 0 to 9, that shows numbers up to `largest` with five digits, so that a column is aligned.
int decimals_for(double largest);

}  // namespace isobar
