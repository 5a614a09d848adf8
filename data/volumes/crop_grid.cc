#include "data/volumes/crop_grid.h"

#include <algorithm>

#include "kernels/common/check.h"

namespace isobar {

CropGrid::CropGrid(const Volume& volume, const CropGridOptions& options) : options_(options), extent_(volume.extent()) {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t size = options.size[axis], overlap = options.overlap[axis];
    ISOBAR_CHECK(size <= extent_[axis], volume.name(), " ", to_string(volume.shape()), " has ", extent_[axis],
                 " points along axis ", axis, ", fewer than a crop, which has ", size, " (config key data_size)");
    ISOBAR_CHECK(overlap >= 0 && overlap < size, volume.name(), ": crops of ", size, " points cannot overlap by ",
                 overlap, "; the overlap is from 0 to ", size - 1);
    pieces_[axis] = pieces_of(axis);
  }
}

std::vector<CropGrid::Piece> CropGrid::pieces_of(std::size_t axis) const {
  const std::int64_t length = extent_[axis], size = options_.size[axis], overlap = options_.overlap[axis];
  const std::int64_t step = size - overlap, margin = overlap / 2;
  std::vector<Piece> pieces;
  if (options_.wraps[axis]) {
    for (std::int64_t first = 0; first < length; first += step)
      pieces.push_back({(first - margin + length) % length, first, std::min(step, length - first)});
    return pieces;
  }
  const std::int64_t last = length - size;
  for (std::int64_t start = 0; start < last; start += step) pieces.push_back({.start = start});
  pieces.push_back({.start = last});
  for (std::size_t i = 1; i < pieces.size(); ++i) pieces[i].first = pieces[i].start + margin;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    pieces[i].count = (i + 1 < pieces.size() ? pieces[i + 1].first : length) - pieces[i].first;
  return pieces;
}

std::int64_t CropGrid::crops() const {
  return std::ssize(pieces_[0]) * std::ssize(pieces_[1]) * std::ssize(pieces_[2]);
}

GridCrop CropGrid::crop(std::int64_t index) const {
  GridCrop crop;
  for (std::size_t axis = 3; axis-- > 0;) {
    const Piece& piece = pieces_[axis][static_cast<std::size_t>(index % std::ssize(pieces_[axis]))];
    index /= std::ssize(pieces_[axis]);
    crop.start[axis] = piece.start;
    crop.first[axis] = piece.first;
    crop.offset[axis] = (piece.first - piece.start + extent_[axis]) % extent_[axis];
    crop.count[axis] = piece.count;
  }
  return crop;
}

bool CropGrid::covers(std::int64_t reach) const {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const bool has_seams = options_.wraps[axis] || pieces_[axis].size() > 1;
    if (has_seams && options_.overlap[axis] / 2 < reach) return false;
  }
  return true;
}

bool CropGrid::begins_at_multiples_of(std::int64_t stride) const {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (options_.wraps[axis] && extent_[axis] % stride != 0) return false;  // then no start is one, from the other end
    for (const Piece& piece : pieces_[axis])
      if (piece.start % stride != 0) return false;
  }
  return true;
}

}  // namespace isobar
