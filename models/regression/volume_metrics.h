// The metrics of a regression of volumes: the loss, and the mean absolute error of each channel, beside that of a
// prediction that needs no network, the input itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/task.h"

namespace isobar {

class VolumeMetrics : public Metrics {
 public:
  // Channels of the input and of the target; the weight of the density in the loss.
  VolumeMetrics(std::int64_t in_channels, std::int64_t out_channels, double density_weight);

  // Whether the input is still to be scored: it is so in the first whole pass alone.
  bool wants_input() const { return !input_is_known_; }
  // Adds a batch of so many points: sums as error_sums() gives them (engine/conv_ops.h), of the absolute errors of the
  // prediction, and of the input if it is wanted. Error if they do not fit the channels.
  void add(std::span<const double> prediction, std::span<const double> input, std::int64_t points);

  void begin() override;
  void end() override { input_is_known_ = true; }
  std::vector<std::span<double>> sums() override;
  double loss() const override;
  double l1(std::size_t channel) const { return mean(prediction_, channel); }
  double input_l1(std::size_t channel) const { return mean(input_, channel); }  // of channels that both have
  // In metrics.jsonl: l1 and input_l1 by channel. In summary.json: val_l1, ...
  Report report(DataSplit split) const override;

 private:
  // Sums of channels, then that of the density, then the number of points.
  using Sums = std::vector<double>;
  static double mean(const Sums& sums, std::size_t channel) { return sums[channel] / sums.back(); }
  std::string name_of_channel(std::size_t channel) const;
  std::string table(DataSplit split) const;

  std::size_t channels_, input_channels_;  // of the target; that the input has too
  double density_weight_;
  Sums prediction_, input_;
  bool input_is_known_ = false;
};

}  // namespace isobar
