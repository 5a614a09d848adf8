#include "models/forecast/padding.h"

#include <algorithm>
#include <array>

#include "data/fields/calendar.h"
#include "data/fields/longitude.h"
#include "kernels/common/check.h"
#include "kernels/common/math.h"

namespace isobar {
namespace {

Behind behind_columns_of(const std::vector<double>& longitudes) {
  return go_round(longitudes) ? Behind::first_points : Behind::last_point;
}

}  // namespace

Ports forecast_ports(const ForecastOptions& o) {
  const std::int64_t planes = o.input_planes() + o.masks() + (*o.time_features ? kTimeFeatures : 0);
  return {.in = {planes, o.height(), o.width()},
          .out = {*o.n_out_channels, o.height(), o.width()},
          .starts_at_zero = o.predict_change};
}

Ports network_ports(const ForecastOptions& options, const NetworkRecipe& network) {
  Ports ports = forecast_ports(options);
  if (!options.pad_grid.value_or(false)) return ports;
  const std::optional<Reach> reach = network.reach();
  for (const std::size_t axis : {1U, 2U}) {
    const std::int64_t points = ports.in[axis], padded = round_up(points, network.multiple());
    const bool wraps = reach && reach->wraps_along(axis - 1);
    ISOBAR_CHECK(padded == points || !wraps, "config key pad_grid: ", points, axis == 1 ? " rows" : " columns",
                 " would become ", padded, ", but config key edge wraps them: copies would lie between the two ends");
    ports.in[axis] = ports.out[axis] = padded;
  }
  return ports;
}

std::string about_padding(const ForecastOptions& options, const NetworkRecipe& network,
                          const std::vector<double>& longitudes) {
  const Shape grid = network_ports(options, network).in;
  const bool adds_rows = grid[1] > options.height(), adds_columns = grid[2] > options.width();
  if (!adds_rows && !adds_columns) return "";
  const bool wraps = behind_columns_of(longitudes) == Behind::first_points;
  return concat("pad_grid: the network sees ", grid[1], " x ", grid[2], " points instead of ", options.height(), " x ",
                options.width(), adds_rows ? "; added rows repeat the last one" : "",
                adds_columns ? "; added columns " : "",
                !adds_columns ? ""
                : wraps       ? "are the first ones, as on a globe"
                              : "repeat the last one");
}

GridPadding::GridPadding(const ForecastOptions& options, const std::vector<double>& longitudes, const Network& network)
    : rows_(network.rows()),
      columns_(options.width()),
      network_rows_(rows_.size()),
      network_columns_(network.ports().in[2]),
      adds_points_(network.ports().in[1] > options.height() || network_columns_ > columns_),
      behind_columns_(behind_columns_of(longitudes)) {
  rows_.end = std::min(rows_.end, options.height());
}

Tensor GridPadding::pad(const Tensor& input) const {
  return adds_points_ ? pad_fields(input, network_rows_, network_columns_, behind_columns_) : input;
}

Tensor GridPadding::cut(const Tensor& output) const {
  return adds_points_ ? crop_fields(output, rows_.size(), columns_) : output;
}

}  // namespace isobar
