#include "data/forecasts/grid_match.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "data/fields/longitude.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kCircle = 360;

double distance(double a, double b, bool round_the_globe) {
  return std::abs(round_the_globe ? std::remainder(a - b, kCircle) : a - b);
}

// The numbers of the held coordinates that are the wanted ones; empty if one of them is not there.
std::vector<std::int64_t> places_of(std::span<const double> wanted, std::span<const double> held,
                                    bool round_the_globe) {
  constexpr double kSameShare = 0.01, kMaxDegrees = 0.01;
  std::vector<std::int64_t> places;
  double spacing = std::numeric_limits<double>::infinity();
  for (std::size_t i = 1; i < held.size(); ++i)
    spacing = std::min(spacing, distance(held[i], held[i - 1], round_the_globe));
  const double tolerance = std::min(kSameShare * spacing, kMaxDegrees);
  for (const double degrees : wanted) {
    const auto nearest =
        std::ranges::min_element(held, {}, [&](double other) { return distance(degrees, other, round_the_globe); });
    if (nearest == held.end() || !(distance(degrees, *nearest, round_the_globe) <= tolerance)) return {};
    places.push_back(nearest - held.begin());
  }
  return places;
}

// "latitudes 75 ... 17.5", "no latitudes".
std::string axis_text(const char* name, std::span<const double> degrees) {
  if (degrees.empty()) return concat("no ", name);
  return degrees.size() == 1 ? concat(name, " ", degrees.front())
                             : concat(name, " ", degrees.front(), " ... ", degrees.back());
}

std::string grid_text(const FieldGrid& grid) {
  return concat(grid.height, " x ", grid.width, " points, ", axis_text("latitudes", grid.latitudes), ", ",
                axis_text("longitudes", grid.longitudes));
}

std::vector<std::int64_t> first_places(std::int64_t wanted, std::int64_t held) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < wanted && wanted <= held; ++i) places.push_back(i);
  return places;
}

std::vector<std::int64_t> places_on_axis(const std::vector<double>& wanted, std::int64_t wanted_count,
                                         const std::vector<double>& held, std::int64_t held_count,
                                         bool round_the_globe) {
  if (wanted.empty() || held.empty()) return first_places(wanted_count, held_count);
  return places_of(wanted, held, round_the_globe);
}

// Rows and columns without coordinates go from north to south, and eastwards from longitude 0, if they go round the
// globe.
void check_order(const FieldGrid& known, const FieldGrid& unknown) {
  if (known.latitudes.size() > 1 && unknown.latitudes.empty())
    ISOBAR_CHECK(known.latitudes.front() > known.latitudes.back(), known.source, ": its latitudes go from ",
                 known.latitudes.front(), " to ", known.latitudes.back(), ", but ", unknown.source,
                 " has none, and its rows are taken from north to south");
  if (!known.longitudes.empty() && unknown.longitudes.empty() && go_round(known.longitudes))
    ISOBAR_CHECK(std::abs(std::remainder(known.longitudes.front(), kCircle)) <
                     kCircle / static_cast<double>(known.longitudes.size()),
                 known.source, ": its longitudes begin at ", known.longitudes.front(), ", but ", unknown.source,
                 " has none, and its columns are taken from 0 on");
}

}  // namespace

GridMatch::GridMatch(const FieldGrid& wanted, const FieldGrid& held)
    : rows_(places_on_axis(wanted.latitudes, wanted.height, held.latitudes, held.height, false)),
      columns_(places_on_axis(wanted.longitudes, wanted.width, held.longitudes, held.width, true)),
      held_width_(held.width) {
  check_order(wanted, held);
  check_order(held, wanted);
  ISOBAR_CHECK(!rows_.empty() && !columns_.empty(), wanted.source, ": its grid of ", grid_text(wanted),
               " is not within that of ", held.source, ": ", grid_text(held));
  const auto [first, last] = std::ranges::minmax(rows_);
  band_ = {first, last - first + 1};
  for (std::int64_t& row : rows_) row -= band_.first;
}

void GridMatch::take(const float* held, float* wanted) const {
  for (const std::int64_t row : rows_)
    for (const std::int64_t column : columns_) *wanted++ = held[row * held_width_ + column];
}

}  // namespace isobar
