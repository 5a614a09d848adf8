#include "models/regression/volume_metrics.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <sstream>

#include "kernels/common/check.h"

namespace isobar {
namespace {

// Of the hydrodynamic simulations.
constexpr std::array kHydroChannels{"rho", "vx", "vy", "vz", "T"};

}  // namespace

VolumeMetrics::VolumeMetrics(std::int64_t in_channels, std::int64_t out_channels, double density_weight)
    : channels_(static_cast<std::size_t>(out_channels)),
      input_channels_(static_cast<std::size_t>(std::min(in_channels, out_channels))),
      density_weight_(density_weight),
      prediction_(channels_ + 2, 0.0),
      input_(input_channels_ + 2, 0.0) {}

void VolumeMetrics::begin() {
  std::ranges::fill(prediction_, 0.0);
  if (wants_input()) std::ranges::fill(input_, 0.0);
}

void VolumeMetrics::add(std::span<const double> prediction, std::span<const double> input, std::int64_t points) {
  const auto add_to = [points](Sums& sums, std::span<const double> more) {
    ISOBAR_CHECK(more.size() + 1 == sums.size(), "sums of ", more.size() - 1, " channels are added to those of ",
                 sums.size() - 2);
    for (std::size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
    sums.back() += static_cast<double>(points);
  };
  add_to(prediction_, prediction);
  if (wants_input()) add_to(input_, input);
}

std::vector<std::span<double>> VolumeMetrics::sums() {
  if (wants_input()) return {prediction_, input_};
  return {prediction_};
}

double VolumeMetrics::loss() const {
  double errors = 0;
  for (std::size_t c = 0; c < channels_; ++c) errors += l1(c);
  return errors / static_cast<double>(channels_) + density_weight_ * mean(prediction_, channels_);
}

std::string VolumeMetrics::name_of_channel(std::size_t channel) const {
  return channels_ == kHydroChannels.size() ? kHydroChannels.at(channel) : "c" + std::to_string(channel);
}

Report VolumeMetrics::report(DataSplit split) const {
  Report report;
  const auto note = [&](const char* figure, std::size_t channel, double value) {
    report.line.push_back({figure, name_of_channel(channel), value});
    report.summary.push_back({figure_of(split, figure), name_of_channel(channel), value});
  };
  for (std::size_t c = 0; c < channels_; ++c) {
    note("l1", c, l1(c));
    report.scalars.emplace_back("L1(" + name_of_channel(c) + ")/valid", l1(c));
  }
  for (std::size_t c = 0; c < input_channels_; ++c) note("input_l1", c, input_l1(c));
  std::ostringstream sentence;
  sentence << "Mean absolute error:";
  for (std::size_t c = 0; c < channels_; ++c) sentence << ' ' << name_of_channel(c) << ' ' << l1(c);
  report.sentence = sentence.str();
  report.table = table(split);
  return report;
}

std::string VolumeMetrics::table(DataSplit split) const {
  std::ostringstream out;
  out << "Mean absolute errors on the " << name_of_set(split) << "\n channel prediction      input";
  for (std::size_t c = 0; c < channels_; ++c) {
    out << '\n' << std::setw(8) << name_of_channel(c) << std::setprecision(5) << std::setw(11) << l1(c);
    if (c < input_channels_) out << std::setw(11) << input_l1(c);
  }
  return out.str();
}

}  // namespace isobar
