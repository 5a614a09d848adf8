// Planes that a network gets as input and that are computed instead of read: where the points lie, and how much sun
// they get.
//
//   cos_zenith      max(0, cos of the sun's zenith angle), at the instant
//   toa_radiation   the sun's radiation on a horizontal plane at the top of the atmosphere, the mean over the time step
//                   that ends at the instant
//   cos_latitude, sin_longitude, cos_longitude
//
// data/fields/sun.h and data/fields/insolation.h have the formulas and their sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/fields/insolation.h"

namespace isobar {

// The nominal solar constant in W m**-2, the mean flux at a distance of one astronomical unit: IAU 2015 Resolution B3.
inline constexpr double kSolarConstant = 1361;

// joule: J m**-2, the energy of an hour at the mean flux. Of hourly data this is ERA5's `tisr`, the sum over the hour
// that ends at the instant. watt: W m**-2, the mean flux.
enum class RadiationUnit { joule, watt };

// The names above, in that order.
const std::vector<std::string>& computed_channel_names();

class ComputedPlanes {
 public:
  // names: some of computed_channel_names(), each at most once. step_hours: the time step of the data; only
  // toa_radiation needs it. Error for another name, which says the nearest one; if the grid's latitudes or longitudes
  // are unknown (empty), not numbers or out of range; if toa_radiation has no time step, or one longer than a year.
  ComputedPlanes(std::vector<std::string> names, GridPoints grid, double step_hours, RadiationUnit unit);

  const std::vector<std::string>& names() const { return names_; }
  std::int64_t rows() const { return static_cast<std::int64_t>(grid_.latitudes.size()); }
  std::int64_t columns() const { return static_cast<std::int64_t>(grid_.longitudes.size()); }

  // Writes the rows [first_row, first_row + count) at an instant, hours since 1970-01-01T00 UTC, to `out`
  // [names, count, columns]. Computed in fp64, and rounded to fp32. A row has the same bits in any band. Error for rows
  // that the grid does not have, and, for the sun's planes, outside the years 1800 to 2199. Thread-safe.
  void write(double hours, std::int64_t first_row, std::int64_t count, float* out) const;

  // A plane is normalised as (value - mean) / deviation. Both are constants, the mean and the standard deviation over
  // the area of the whole globe with the sun at the distance 1: they depend neither on the grid nor on the time, so
  // that a normalised value means the same on every grid and in every band of rows. cos_zenith has the mean 1/4 and the
  // variance 1/6 - 1/16, cos_latitude π/4 and 2/3 - π²/16, sin_longitude and cos_longitude 0 and 1/2. toa_radiation has
  // those of cos_zenith, in solar constants; means over a step of many hours vary less than that.
  double mean(std::size_t plane) const;
  double deviation(std::size_t plane) const;

 private:
  void fill(const std::string& name, double hours, RowBand rows, std::span<double> out) const;
  double radiation_scale() const;  // toa_radiation for an insolation of 1

  std::vector<std::string> names_;
  GridPoints grid_;  // the longitudes in (-180, 180]: 270 has the bits of -90
  double step_hours_ = 0;
  RadiationUnit unit_ = RadiationUnit::joule;
};

}  // namespace isobar
