// The metrics of a regression of pictures: the mean squared and the mean absolute error, beside two predictions that
// need no network: the input itself, and for each channel the best single number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/task.h"

namespace isobar {

class RegressionMetrics : public Metrics {
 public:
  // Channels of the input and of the target.
  RegressionMetrics(std::int64_t in_channels, std::int64_t out_channels);

  // Adds a batch: [B, out channels, points] of prediction and target, [B, in channels, points] of the input; B may be
  // 0. Error if they do not fit each other.
  void add(std::span<const double> prediction, std::span<const double> target, std::span<const double> input,
           std::int64_t batch);

  void begin() override;
  std::vector<std::span<double>> sums() override { return {sums_}; }
  double loss() const override;          // mean squared error, over samples, channels and points
  double l1(std::size_t channel) const;  // mean absolute error of a channel
  double input_loss() const;             // of the input as the prediction, over the channels that both have
  double constant_loss() const;          // of each channel's mean in this set as the prediction
  // In metrics.jsonl: l1 by channel ("c0" is the first), input_loss, constant_loss. In summary.json: val_l1, ...
  Report report(DataSplit split) const override;

 private:
  enum Sum : std::size_t { squares, absolutes, input_squares, targets, target_squares, count, kSums };
  double& sum(std::size_t channel, Sum which) { return sums_[channel * kSums + which]; }
  double mean(std::size_t channel, Sum which) const {
    return sums_[channel * kSums + which] / sums_[channel * kSums + count];
  }
  std::string table(DataSplit split) const;

  std::size_t in_channels_, out_channels_;
  std::vector<double> sums_;  // [out channels, kSums]
};

}  // namespace isobar
