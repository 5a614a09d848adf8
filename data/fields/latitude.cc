#include "data/fields/latitude.h"

#include <algorithm>
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

std::vector<double> cell_weights(std::span<const double> latitudes) {
  if (latitudes.size() < 2) return std::vector<double>(latitudes.size(), 1.0);
  const auto sine = [](double degrees) { return std::sin(std::clamp(degrees, -90.0, 90.0) * std::numbers::pi / 180); };
  const bool falls = latitudes.back() < latitudes.front();
  // borders[j] is between row j - 1 and row j.
  std::vector<double> borders{latitudes[0] - (latitudes[1] - latitudes[0]) / 2};
  for (std::size_t j = 1; j < latitudes.size(); ++j) {
    ISOBAR_CHECK(falls ? latitudes[j] < latitudes[j - 1] : latitudes[j] > latitudes[j - 1],
                 "the cells of rows have no area where latitudes neither rise nor fall: ", latitudes[j - 1], ", ",
                 latitudes[j]);
    borders.push_back((latitudes[j - 1] + latitudes[j]) / 2);
  }
  borders.push_back(2 * latitudes.back() - borders.back());
  std::vector<double> areas;
  for (std::size_t j = 0; j < latitudes.size(); ++j) areas.push_back(std::abs(sine(borders[j + 1]) - sine(borders[j])));
  return with_mean_one(std::move(areas));
}

std::vector<double> latitude_weights(LatitudeWeights kind, std::span<const double> latitudes, std::int64_t height,
                                     const std::string& where) {
  if (kind == LatitudeWeights::cells) {
    ISOBAR_CHECK(!latitudes.empty(), where, " has no latitudes, which weights by the area of cells need");
    return cell_weights(latitudes);
  }
  return kind == LatitudeWeights::tutorial || latitudes.empty() ? tutorial_latitude_weights(height)
                                                                : latitude_weights(latitudes);
}

std::vector<double> latitude_weights(const FieldSeries& dataset, LatitudeWeights kind) {
  return latitude_weights(kind, dataset.latitudes(), dataset.height(), dataset.file_name(0));
}

std::vector<double> latitude_weights(const FieldSeries& dataset, RowBand rows) {
  dataset.check_band(rows);
  const std::vector<double> all = latitude_weights(dataset);
  return {all.begin() + rows.first, all.begin() + rows.first + rows.count};
}

}  // namespace isobar
