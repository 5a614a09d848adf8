#include "data/fields/first_step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kMaxDeviations = 20;
constexpr double kLevel = 8, kShareOfLevel = 0.75;

// Max distance of a field's values from the mean of the statistics, on average, in standard deviations.
double bound(double mean, double std) {
  const double level = std::abs(mean) / std;
  return level > kLevel ? std::min(kMaxDeviations, kShareOfLevel * level) : kMaxDeviations;
}

}  // namespace

void check_first_step(const FieldSeries& dataset, std::int64_t step, const std::vector<std::string>& channel_names,
                      const Statistics& statistics) {
  std::vector<float> fields(static_cast<std::size_t>(dataset.values()));
  dataset.read_step(step, fields.data());
  const std::size_t pixels = fields.size() / static_cast<std::size_t>(dataset.channels());
  for (std::size_t c = 0; c < statistics.means.size(); ++c) {
    const double mean = statistics.means[c], std = statistics.stds[c];
    double distance = 0, sum = 0, count = 0;
    for (float value : std::span(fields).subspan(c * pixels, pixels)) {
      if (std::isnan(value)) continue;  // missing points, if the channel may have them
      ++count;
      distance += std::abs(static_cast<double>(value) - mean) / std;
      sum += static_cast<double>(value);
    }
    if (count == 0) continue;
    ISOBAR_CHECK(distance / count <= bound(mean, std), dataset.file_name_of(step), ": step ", dataset.place(step).step,
                 ", channel ", channel_names[c], " lies ", distance / count,
                 " standard deviations off its statistics: its mean is ", sum / count, ", theirs is ", mean,
                 "; is it in another unit?");
  }
}

}  // namespace isobar
