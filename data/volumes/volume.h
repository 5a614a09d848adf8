// Volumes: fields on a box of points, [C, D, H, W], or on several boxes of one size, of which smaller boxes are read.
// From HDF5 datasets, from .npy files, and in memory.
//
// The reference's data are a pair of volumes on one box, from N-body simulations to hydrodynamic ones: the datasets
// `Nbody` [4, L, L, L] (density, three components of the velocity) and `Hydro` [5, L, L, L] (the same, and temperature)
// of an HDF5 file; or X_data.npy and X_label.npy, [L, L, L, 4] and [L, L, L, 5]. Several boxes are a first axis.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace isobar {

using Point = std::array<std::int64_t, 3>;  // along D, H and W

inline std::int64_t points_of(const Point& size) {
  return size[0] * size[1] * size[2];
}

// Calls visit(channel, i, j) for every line along the last axis of fields [C, size], in the order of memory.
template <class Visit>
void for_each_line(std::int64_t channels, const Point& size, const Visit& visit) {
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t i = 0; i < size[0]; ++i)
      for (std::int64_t j = 0; j < size[1]; ++j) visit(c, i, j);
}

class Volume {
 public:
  virtual ~Volume() = default;
  Volume(const Volume&) = delete;
  Volume& operator=(const Volume&) = delete;

  const std::string& name() const { return name_; }  // "FILE: 'Nbody'"
  std::int64_t boxes() const { return boxes_; }
  std::int64_t channels() const { return shape_[0]; }
  Point extent() const { return {shape_[1], shape_[2], shape_[3]}; }
  const Shape& shape() const { return shape_; }  // of a box

  // Writes the points [start, start + size) of all channels of a box as [C, size]. Thread-safe. Error, with name,
  // channel and point, where a value is not finite, and where the points are not within the box.
  void read(std::int64_t box, const Point& start, const Point& size, float* out) const;

  // The same of a periodic box: after its last point along an axis comes the first one. Error if start is not within
  // the box, and if size is larger than it.
  void read_wrapped(std::int64_t box, const Point& start, const Point& size, float* out) const;

  virtual std::vector<std::string> units() const { return {}; }  // of all channels, or of each; none: not known

 protected:
  // shape: [boxes, C, D, H, W], or [C, D, H, W] of a single box
  Volume(std::string name, const Shape& shape);

 private:
  virtual void pull(std::int64_t box, const Point& start, const Point& size, float* out) const = 0;

  const std::string name_;
  const std::int64_t boxes_;
  const Shape shape_;
};

// What goes in, and what has to come out, on the same boxes.
struct VolumePair {
  std::unique_ptr<const Volume> input, target;

  std::int64_t boxes() const { return input->boxes(); }
  Point extent() const { return input->extent(); }
};

// path: an HDF5 file, a file X_data.npy beside X_label.npy, or a folder with one such file. Error, with the file and
// both shapes, for datasets that are missing, have other dimensions, or are not of the same boxes.
VolumePair open_volumes(const std::string& path);
// The same, but there may be no target.
VolumePair open_volumes_to_predict(const std::string& path);

// The same pair, read once.
VolumePair in_memory(const VolumePair& stored);

// A pair that no file has, in memory: the input is uniform in [-1, 1), a function of the seed; channel c of the target
// is half of the input's channel c, whose channels repeat. So there is something to learn.
VolumePair synthetic_volumes(const Point& extent, std::int64_t in_channels, std::int64_t out_channels,
                             std::uint64_t seed);

}  // namespace isobar
