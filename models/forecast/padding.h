// The grid of a forecast's network. It is the data's, or, with the config key pad_grid, one that goes on behind the
// data's last row and column up to the next multiple of what the network takes (NetworkRecipe::multiple()).
//
// - Added rows are copies of the last row, the southernmost one where rows run from north to south. A copy needs no
//   coordinates, and there is no jump between it and the last row. What really lies beyond a pole, the rows before it
//   turned by half a circle, would suit scalars only: winds change their sign there.
// - Added columns are the first ones again where the longitudes go round the globe: what really lies there. Else they
//   are copies of the last column.
//
// All planes of an input are padded, after normalisation. A forecast is cut before anything else sees it: losses,
// scores and files know the data's grid only. So an added point has no weight in the loss, and its output no gradient.
#pragma once

#include <string>
#include <vector>

#include "engine/field_ops.h"
#include "models/forecast/options.h"
#include "models/network.h"

namespace isobar {

// Of the data's grid.
Ports forecast_ports(const ForecastOptions& options);
// Of the network's grid. Its keys have values. Error where an axis is lengthened whose ends are neighbours for the
// network (Reach::wraps): the copies would lie between them.
Ports network_ports(const ForecastOptions& options, const NetworkRecipe& network);

// "pad_grid: the network sees 80 x 144 points instead of 73 x 144; added rows repeat the last one"; empty: no point is
// added. longitudes: of the data, or empty.
std::string about_padding(const ForecastOptions& options, const NetworkRecipe& network,
                          const std::vector<double>& longitudes);

class GridPadding {
 public:
  // network: of network_ports(). longitudes: of the data's columns, or empty, which do not go round.
  GridPadding(const ForecastOptions& options, const std::vector<double>& longitudes, const Network& network);

  // The rows of the data's grid that this rank has. Added rows are fewer than a rank has, and all are of the last one.
  Part rows() const { return rows_; }
  bool adds_points() const { return adds_points_; }  // on any rank

  // [B, V, LAT, LON] of the data's grid to that of the network, and back; LAT counts the rows of this rank.
  Tensor pad(const Tensor& input) const;
  Tensor cut(const Tensor& output) const;

 private:
  Part rows_;
  std::int64_t columns_;                         // of the data's grid
  std::int64_t network_rows_, network_columns_;  // network_rows_: of this rank
  bool adds_points_;
  Behind behind_columns_;
};

}  // namespace isobar
