// Crops that cover a box together, for what is computed crop by crop and put together from their inner parts.
//
// Neighbouring crops of S points overlap by N along each axis. Each point of the box is kept of exactly one crop, where
// it lies at least N/2 points (rounded down) from both ends of the crop. The exceptions are the ends of an axis that
// does not wrap: there a crop is kept up to the end of the box.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "data/volumes/volume.h"

namespace isobar {

struct CropGridOptions {
  Point size = {}, overlap = {};   // S and N
  std::array<bool, 3> wraps = {};  // along a periodic axis crops go on at the other end
};

// A crop and what is kept of it.
struct GridCrop {
  Point start = {};   // of the crop, within the box
  Point first = {};   // of the kept part, within the box
  Point offset = {};  // of the kept part, within the crop
  Point count = {};   // of the kept part
};

class CropGrid {
 public:
  // Error naming the volume, with both numbers, if a crop is larger than the box, and if the overlap is negative or not
  // smaller than the crop.
  CropGrid(const Volume& volume, const CropGridOptions& options);

  std::int64_t crops() const;
  GridCrop crop(std::int64_t index) const;

  const CropGridOptions& options() const { return options_; }
  // Whether every kept point has the values that a network gets from the whole box, which it sees this far, with crops
  // that begin at multiples of `stride`.
  bool covers(std::int64_t reach) const;
  bool begins_at_multiples_of(std::int64_t stride) const;

 private:
  struct Piece {
    std::int64_t start = 0, first = 0, count = 0;
  };
  std::vector<Piece> pieces_of(std::size_t axis) const;

  CropGridOptions options_;
  Point extent_;
  std::array<std::vector<Piece>, 3> pieces_;
};

}  // namespace isobar
