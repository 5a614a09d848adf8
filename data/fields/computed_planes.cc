#include "data/fields/computed_planes.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/common/suggestions.h"

namespace isobar {
namespace {

constexpr const char* kRadiationName = "toa_radiation";
constexpr double kMaxStepHours = 366 * 24;
constexpr double kSecondsPerHour = 3600;

void check_computed_names(const std::vector<std::string>& names) {
  const std::vector<std::string>& known = computed_channel_names();
  for (auto name = names.begin(); name != names.end(); ++name) {
    ISOBAR_CHECK(std::find(known.begin(), known.end(), *name) != known.end(), "'", *name,
                 "' is not a channel that can be computed; the nearest is ", nearest_name(*name, known));
    ISOBAR_CHECK(std::find(names.begin(), name, *name) == name, "the computed channel ", *name, " is named twice");
  }
}

// what: "latitude". Negated comparisons, so that NaN is refused too.
void check_coordinates(const std::vector<double>& degrees, const std::string& what, double low, double high) {
  ISOBAR_CHECK(!degrees.empty(), "computed channels need the ", what, "s of the data, which are unknown");
  for (std::size_t i = 0; i < degrees.size(); ++i)
    ISOBAR_CHECK(degrees[i] >= low && degrees[i] <= high, "computed channels need ", what, "s from ", low, " to ", high,
                 " degrees; number ", i, " is ", degrees[i]);
}

void check_step(double step_hours) {
  ISOBAR_CHECK(step_hours > 0, kRadiationName, " is a mean over the time step of the data, which is unknown");
  ISOBAR_CHECK(step_hours <= kMaxStepHours, kRadiationName, " is a mean over the time step of the data; ", step_hours,
               " hours are more than a year");
}

// In (-180, 180]. fmod and remainder are exact.
double within_half_turn(double degrees) {
  const double reduced = std::remainder(degrees, 360.0);
  return reduced == -180 ? 180 : reduced;
}

double radians_of(double degrees) {
  return degrees * std::numbers::pi / 180;
}

// out: [rows.count, columns].
void fill_cos_latitude(const GridPoints& grid, RowBand rows, std::span<double> out) {
  const std::size_t width = grid.longitudes.size(), count = static_cast<std::size_t>(rows.count);
  for (std::size_t i = 0; i < count; ++i) {
    const double latitude = grid.latitudes[static_cast<std::size_t>(rows.first) + i];
    std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(i * width), width, std::cos(radians_of(latitude)));
  }
}

// Each row of `out` becomes the sines of the longitudes, or their cosines.
void fill_longitude(const GridPoints& grid, bool sines, std::span<double> out) {
  std::vector<double> row;
  for (double degrees : grid.longitudes)
    row.push_back(sines ? std::sin(radians_of(degrees)) : std::cos(radians_of(degrees)));
  for (auto to = out.begin(); to != out.end();) to = std::copy(row.begin(), row.end(), to);
}

// Mean and variance over a sphere of a plane of the given name; toa_radiation in solar constants.
struct SphereMoments {
  double mean = 0, variance = 0;
};

SphereMoments sphere_moments(const std::string& name) {
  constexpr double kPi = std::numbers::pi;
  if (name == "cos_latitude") return {kPi / 4, 2.0 / 3 - kPi * kPi / 16};
  if (name == "sin_longitude" || name == "cos_longitude") return {0, 0.5};
  return {0.25, 1.0 / 6 - 1.0 / 16};
}

}  // namespace

const std::vector<std::string>& computed_channel_names() {
  static const std::vector<std::string> names = {"cos_zenith", kRadiationName, "cos_latitude", "sin_longitude",
                                                 "cos_longitude"};
  return names;
}

ComputedPlanes::ComputedPlanes(std::vector<std::string> names, GridPoints grid, double step_hours, RadiationUnit unit)
    : names_(std::move(names)), grid_(std::move(grid)), step_hours_(step_hours), unit_(unit) {
  check_computed_names(names_);
  check_coordinates(grid_.latitudes, "latitude", -90, 90);
  check_coordinates(grid_.longitudes, "longitude", -180, 360);
  if (std::find(names_.begin(), names_.end(), kRadiationName) != names_.end()) check_step(step_hours);
  for (double& longitude : grid_.longitudes) longitude = within_half_turn(longitude);
}

void ComputedPlanes::write(double hours, std::int64_t first_row, std::int64_t count, float* out) const {
  ISOBAR_CHECK(first_row >= 0 && count >= 0 && count <= rows() - first_row, "computed channels: the ", count,
               " rows from row ", first_row, " are not within the grid's ", rows());
  std::vector<double> values(static_cast<std::size_t>(count * columns()));
  for (const std::string& name : names_) {
    fill(name, hours, {first_row, count}, values);
    out = std::transform(values.begin(), values.end(), out, [](double value) { return static_cast<float>(value); });
  }
}

void ComputedPlanes::fill(const std::string& name, double hours, RowBand rows, std::span<double> out) const {
  if (name == "cos_zenith") return cos_zenith(grid_, hours, rows, out);
  if (name == kRadiationName) {
    mean_insolation(grid_, hours, step_hours_, rows, out);
    for (double& value : out) value *= radiation_scale();
    return;
  }
  if (name == "cos_latitude") return fill_cos_latitude(grid_, rows, out);
  fill_longitude(grid_, name == "sin_longitude", out);
}

double ComputedPlanes::radiation_scale() const {
  return unit_ == RadiationUnit::joule ? kSolarConstant * kSecondsPerHour : kSolarConstant;
}

double ComputedPlanes::mean(std::size_t plane) const {
  const double scale = names_.at(plane) == kRadiationName ? radiation_scale() : 1;
  return scale * sphere_moments(names_[plane]).mean;
}

double ComputedPlanes::deviation(std::size_t plane) const {
  const double scale = names_.at(plane) == kRadiationName ? radiation_scale() : 1;
  return scale * std::sqrt(sphere_moments(names_[plane]).variance);
}

}  // namespace isobar
