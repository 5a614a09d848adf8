#include "models/regression/metrics.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "kernels/common/check.h"

namespace isobar {
namespace {

std::string name_of_channel(std::size_t channel) {
  return "c" + std::to_string(channel);
}

}  // namespace

RegressionMetrics::RegressionMetrics(std::int64_t in_channels, std::int64_t out_channels)
    : in_channels_(static_cast<std::size_t>(in_channels)),
      out_channels_(static_cast<std::size_t>(out_channels)),
      sums_(out_channels_ * kSums, 0.0) {}

void RegressionMetrics::begin() {
  std::ranges::fill(sums_, 0.0);
}

void RegressionMetrics::add(std::span<const double> prediction, std::span<const double> target,
                            std::span<const double> input, std::int64_t batch) {
  if (batch == 0) return;
  const auto samples = static_cast<std::size_t>(batch);
  const std::size_t points = target.size() / (samples * out_channels_);
  ISOBAR_CHECK(prediction.size() == target.size() && target.size() == samples * out_channels_ * points &&
                   input.size() == samples * in_channels_ * points,
               "a batch of ", batch, " has ", prediction.size(), " values of the prediction, ", target.size(),
               " of the target and ", input.size(), " of the input");
  for (std::size_t b = 0; b < samples; ++b)
    for (std::size_t c = 0; c < out_channels_; ++c) {
      const std::size_t first = (b * out_channels_ + c) * points, first_in = (b * in_channels_ + c) * points;
      for (std::size_t i = 0; i < points; ++i) {
        const double t = target[first + i], error = prediction[first + i] - t;
        const double input_error = c < in_channels_ ? input[first_in + i] - t : 0;
        sum(c, squares) += error * error;
        sum(c, absolutes) += std::abs(error);
        sum(c, input_squares) += input_error * input_error;
        sum(c, targets) += t;
        sum(c, target_squares) += t * t;
      }
      sum(c, count) += static_cast<double>(points);
    }
}

// All channels have the same number of points.
double RegressionMetrics::loss() const {
  double total = 0;
  for (std::size_t c = 0; c < out_channels_; ++c) total += mean(c, squares);
  return total / static_cast<double>(out_channels_);
}

double RegressionMetrics::l1(std::size_t channel) const {
  return mean(channel, absolutes);
}

double RegressionMetrics::input_loss() const {
  const std::size_t both = std::min(in_channels_, out_channels_);
  double total = 0;
  for (std::size_t c = 0; c < both; ++c) total += mean(c, input_squares);
  return total / static_cast<double>(both);
}

double RegressionMetrics::constant_loss() const {
  double total = 0;
  for (std::size_t c = 0; c < out_channels_; ++c)
    total += mean(c, target_squares) - mean(c, targets) * mean(c, targets);
  return total / static_cast<double>(out_channels_);
}

Report RegressionMetrics::report(DataSplit split) const {
  Report report;
  for (std::size_t c = 0; c < out_channels_; ++c) {
    report.line.push_back({"l1", name_of_channel(c), l1(c)});
    report.summary.push_back({figure_of(split, "l1"), name_of_channel(c), l1(c)});
  }
  for (const auto& [name, value] :
       {std::pair("input_loss", input_loss()), std::pair("constant_loss", constant_loss())}) {
    report.line.push_back({name, "", value});
    report.summary.push_back({figure_of(split, name), "", value});
  }
  report.scalars = {{"L1/valid", l1(0)}};
  report.sentence = concat("Mean squared error ", loss(), "; of the input itself ", input_loss(),
                           ", of the best constant ", constant_loss());
  report.table = table(split);
  return report;
}

std::string RegressionMetrics::table(DataSplit split) const {
  std::ostringstream out;
  out << "Errors on the " << name_of_set(split) << "\n channel    squared   absolute";
  for (std::size_t c = 0; c < out_channels_; ++c)
    out << '\n'
        << std::setw(8) << name_of_channel(c) << std::setprecision(5) << std::setw(11) << mean(c, squares)
        << std::setw(11) << l1(c);
  out << "\n     all" << std::setw(11) << loss() << "\n   input" << std::setw(11) << input_loss() << "\nconstant"
      << std::setw(11) << constant_loss();
  return out.str();
}

}  // namespace isobar
