#include "data/fields/latitude.h"

#include <cmath>
#include <numbers>

#include "kernels/common/check.h"

namespace isobar {
namespace {

std::vector<double> with_mean_one(std::vector<double> cosines) {
  double sum = 0;
  for (double c : cosines) sum += c;
  ISOBAR_CHECK(sum > 0, "the latitudes have no weight: the sum of their cosines is ", sum);
  for (double& c : cosines) c *= static_cast<double>(cosines.size()) / sum;
  return cosines;
}

}  // namespace

std::vector<double> latitude_weights(std::span<const double> latitudes) {
  std::vector<double> cosines;
  for (double degrees : latitudes) cosines.push_back(std::cos(degrees * std::numbers::pi / 180));
  return with_mean_one(std::move(cosines));
}

std::vector<double> tutorial_latitude_weights(std::int64_t height) {
  ISOBAR_CHECK(height > 1, "img_size leaves ", height, " row, and latitude weights need at least two");
  constexpr double kTutorialPi = 3.1416;
  std::vector<double> cosines;
  for (std::int64_t j = 0; j < height; ++j) {
    const double degrees = 90 - 180 * static_cast<double>(j) / static_cast<double>(height - 1);
    cosines.push_back(std::cos(kTutorialPi / 180 * degrees));
  }
  return with_mean_one(std::move(cosines));
}

std::vector<double> latitude_weights(const FieldSeries& dataset) {
  return dataset.latitudes().empty() ? tutorial_latitude_weights(dataset.height())
                                     : latitude_weights(dataset.latitudes());
}

std::vector<double> latitude_weights(const FieldSeries& dataset, RowBand rows) {
  dataset.check_band(rows);
  const std::vector<double> all = latitude_weights(dataset);
  return {all.begin() + rows.first, all.begin() + rows.first + rows.count};
}

}  // namespace isobar
