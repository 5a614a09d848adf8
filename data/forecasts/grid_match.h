// Where the points of one grid lie in another one: a crop of it, with the rows in any direction and any first column.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace isobar {

// Latitudes [height] and longitudes [width] in degrees; empty: unknown. `source` is the file's name, for messages.
struct FieldGrid {
  std::int64_t height = 0, width = 0;
  std::vector<double> latitudes = {}, longitudes = {};
  std::string source = {};

  std::int64_t points() const { return height * width; }
};

class GridMatch {
 public:
  // Each row of `wanted` is the row of `held` with the same latitude, each column the one with the same longitude
  // (modulo 360 degrees), to within a hundredth of a spacing and 0.01 degrees. A grid without coordinates is taken from
  // the first row and column of `held`, as config key img_size crops it, north to south and eastwards from
  // longitude 0: Error if the other grid's coordinates have another order. Error with both grids if a point of `wanted`
  // is not in `held`.
  GridMatch(const FieldGrid& wanted, const FieldGrid& held);

  // The rows of `held` that hold all rows of `wanted`.
  RowBand rows() const { return band_; }
  // held: [rows().count, held.width]; wanted: [wanted.height, wanted.width].
  void take(const float* held, float* wanted) const;

 private:
  std::vector<std::int64_t> rows_, columns_;  // of `held`, by those of `wanted`; rows counted from the band's first
  RowBand band_;
  std::int64_t held_width_ = 0;
};

}  // namespace isobar
