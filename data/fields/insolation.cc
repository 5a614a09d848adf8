#include "data/fields/insolation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "data/fields/sun.h"

namespace isobar {
namespace {

// cos z = a + b cos h on a row.
struct RowLight {
  double a = 0, b = 0;

  RowLight(const Sun& sun, double latitude) {
    const double radians = latitude * std::numbers::pi / 180;
    a = std::sin(radians) * sun.sin_declination;
    b = std::cos(radians) * sun.cos_declination;  // positive: the double nearest to π/2 is below it
  }
};

// A piece of the interval: the hour angles of each column at its ends.
struct Piece {
  struct End {
    std::vector<double> angle, sine;  // [columns], the angles in [-π, π]
  };

  Sun sun;             // of the middle
  double radians = 0;  // by which the earth turns
  End begin, end;
  std::vector<double> midnights;  // [columns], 1 where midnight lies between the ends, else 0

  // middle: hours since 1970; length: hours, at most 1.
  Piece(const std::vector<double>& longitudes, double middle, double length)
      : sun(sun_at(middle)), radians(15 * length * std::numbers::pi / 180) {
    const double half = 15 * length / 2;  // degrees
    for (double longitude : longitudes) {
      add(begin, longitude - half);
      add(end, longitude + half);
      midnights.push_back(end.angle.back() < begin.angle.back() ? 1 : 0);
    }
  }

 private:
  void add(End& to, double longitude) const {
    to.angle.push_back(sun.hour_angle_at(longitude));
    to.sine.push_back(std::sin(to.angle.back()));
  }
};

// Adds `share` times the mean over a piece to each point of a row.
void add_mean(const Piece& piece, double latitude, double share, std::span<double> out) {
  const RowLight row(piece.sun, latitude);
  const double weight = share / (piece.radians * piece.sun.distance * piece.sun.distance);
  const double sunset = std::acos(std::clamp(-row.a / row.b, -1.0, 1.0));
  const double afternoon = row.a * sunset + row.b * std::sin(sunset);
  const auto since_noon = [&](double angle, double sine) {
    const double light = row.a * angle + row.b * sine;
    return angle >= sunset ? afternoon : angle <= -sunset ? -afternoon : light;
  };
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double before = since_noon(piece.begin.angle[i], piece.begin.sine[i]);
    const double after = since_noon(piece.end.angle[i], piece.end.sine[i]);
    out[i] += weight * std::max(0.0, after - before + 2 * afternoon * piece.midnights[i]);
  }
}

// Calls row(latitude, values) for each row, with the row's part of `out`.
template <class F>
void for_rows(const GridPoints& grid, RowBand rows, std::span<double> out, const F& row) {
  const std::size_t columns = grid.longitudes.size();
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows.count); ++i)
    row(grid.latitudes[static_cast<std::size_t>(rows.first) + i], out.subspan(i * columns, columns));
}

}  // namespace

void cos_zenith(const GridPoints& grid, double hours, RowBand rows, std::span<double> out) {
  const Sun sun = sun_at(hours);
  std::vector<double> cosines;
  for (double longitude : grid.longitudes) cosines.push_back(std::cos(sun.hour_angle_at(longitude)));
  for_rows(grid, rows, out, [&](double latitude, std::span<double> values) {
    const RowLight row(sun, latitude);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::max(0.0, row.a + row.b * cosines[i]);
  });
}

void mean_insolation(const GridPoints& grid, double hours, double span, RowBand rows, std::span<double> out) {
  constexpr double kRounding = 1e-9;  // of a span that was computed: six hours are six pieces
  const double pieces = std::max(1.0, std::ceil(span - kRounding));
  const double length = span / pieces;
  std::vector<Piece> light;
  for (double k = 0; k < pieces; ++k) light.emplace_back(grid.longitudes, hours - span + (k + 0.5) * length, length);
  for_rows(grid, rows, out, [&](double latitude, std::span<double> values) {
    std::fill(values.begin(), values.end(), 0.0);
    for (const Piece& piece : light) add_mean(piece, latitude, 1 / pieces, values);
  });
}

}  // namespace isobar
