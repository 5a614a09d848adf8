#include "data/volumes/volume.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/files/hdf5.h"
#include "data/files/hdf5_box_reader.h"
#include "data/files/npy.h"
#include "data/files/visible_files.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"
#include "kernels/common/rng.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

constexpr const char *kInput = "Nbody", *kTarget = "Hydro";
constexpr const char *kDataEnding = "_data.npy", *kLabelEnding = "_label.npy";
constexpr std::int64_t kCachedVolumeBytes = std::int64_t{256} << 20;  // of decoded chunks

// axes: of a box, in the order of the file.
void check_axes(const std::string& name, const Shape& shape, const char* axes) {
  ISOBAR_CHECK(shape.size() == 4 || shape.size() == 5, name, " has the shape ", to_string(shape),
               "; volumes have four dimensions: ", axes, "; or one before these: boxes");
}

// A part of a periodic axis that a crop covers: the points [from, from + count), which are those from `to` on of the
// crop.
struct Stretch {
  std::int64_t from = 0, to = 0, count = 0;
};

// Of a crop that begins within the axis and is not longer.
std::vector<Stretch> stretches_of(std::int64_t start, std::int64_t size, std::int64_t length) {
  const std::int64_t before_end = std::min(size, length - start);
  if (before_end == size) return {{start, 0, size}};
  return {{start, 0, before_end}, {0, before_end, size - before_end}};
}

// A dataset of an HDF5 file, which both volumes of a pair share.
class StoredVolume : public Volume {
 public:
  StoredVolume(std::shared_ptr<const hdf5::File> file, const char* dataset, const CacheBudget& budget)
      : Volume(concat(file->path(), ": '", dataset, "'"), shape_in(*file, dataset)),
        file_(std::move(file)),
        dataset_(dataset),
        reader_(make_box_reader(*file_, dataset, file_->info(dataset), {.budget = budget, .rows = "channels"})) {}

  std::vector<std::string> units() const override { return file_->attribute_list(dataset_, "units"); }

 private:
  static Shape shape_in(const hdf5::File& file, const char* dataset) {
    ISOBAR_CHECK(file.has(dataset), file.path(), " has no dataset '", dataset, "'");
    const hdf5::DatasetInfo info = file.info(dataset);
    check_axes(concat(file.path(), ": dataset '", dataset, "'"), info.shape, "channels, depth, height, width");
    return info.shape;
  }
  void pull(std::int64_t box, const Point& start, const Point& size, float* out) const override {
    const std::array<std::int64_t, 5> from{box, 0, start[0], start[1], start[2]};
    const std::array<std::int64_t, 5> count{1, channels(), size[0], size[1], size[2]};
    const std::size_t first = from.size() - reader_->shape().size();
    reader_->read(std::span(from).subspan(first), std::span(count).subspan(first), out);
  }

  const std::shared_ptr<const hdf5::File> file_;
  const std::string dataset_;
  const std::unique_ptr<BoxReader> reader_;
};

// [D, H, W, C] or [boxes, D, H, W, C] in a .npy file.
class NpyVolume : public Volume {
 public:
  explicit NpyVolume(const std::string& path) : NpyVolume(path, NpyFile(path)) {}

 private:
  NpyVolume(const std::string& path, NpyFile file) : Volume(path, shape_in(path, file)), file_(std::move(file)) {}

  static Shape shape_in(const std::string& path, const NpyFile& file) {
    Shape shape = file.shape();
    check_axes(path, shape, "depth, height, width, channels");
    std::rotate(shape.end() - 4, shape.end() - 1, shape.end());  // the channels before the points
    return shape;
  }
  void pull(std::int64_t box, const Point& start, const Point& size, float* out) const override {
    const Point all = extent();
    std::vector<float> line(static_cast<std::size_t>(size[2] * channels()));
    for (std::int64_t i = 0; i < size[0]; ++i)
      for (std::int64_t j = 0; j < size[1]; ++j) {
        const std::int64_t first = ((box * all[0] + start[0] + i) * all[1] + start[1] + j) * all[2] + start[2];
        file_.read(first * channels(), size[2] * channels(), line.data());
        for (std::int64_t c = 0; c < channels(); ++c)
          for (std::int64_t k = 0; k < size[2]; ++k)
            out[((c * size[0] + i) * size[1] + j) * size[2] + k] = line[static_cast<std::size_t>(k * channels() + c)];
      }
  }

  const NpyFile file_;
};

class VolumeInMemory : public Volume {
 public:
  VolumeInMemory(std::string name, const Shape& shape, std::vector<float> values)
      : Volume(std::move(name), shape), values_(std::move(values)) {}

 private:
  void pull(std::int64_t box, const Point& start, const Point& size, float* out) const override {
    const Point all = extent();
    for_each_line(channels(), size, [&](std::int64_t c, std::int64_t i, std::int64_t j) {
      const std::int64_t plane = (box * channels() + c) * all[0] + start[0] + i;
      out = std::copy_n(values_.begin() + (plane * all[1] + start[1] + j) * all[2] + start[2], size[2], out);
    });
  }

  const std::vector<float> values_;
};

std::unique_ptr<const Volume> in_memory(const Volume& stored) {
  Shape shape{stored.boxes()};
  shape.insert(shape.end(), stored.shape().begin(), stored.shape().end());
  std::vector<float> values(static_cast<std::size_t>(checked_product(shape, stored.name())));
  const std::size_t of_box = values.size() / static_cast<std::size_t>(stored.boxes());
  for (std::int64_t box = 0; box < stored.boxes(); ++box)
    stored.read(box, {}, stored.extent(), values.data() + static_cast<std::size_t>(box) * of_box);
  return std::make_unique<VolumeInMemory>(stored.name(), shape, std::move(values));
}

bool is_hdf5(const fs::path& path) {
  return path.extension() == ".h5" || path.extension() == ".hdf5";
}

bool is_npy_data(const fs::path& path) {
  return path.filename().string().ends_with(kDataEnding);
}

fs::path volumes_at(const fs::path& path) {
  if (!fs::is_directory(path)) return path;
  std::vector<fs::path> found;
  for (const fs::path& file : visible_files(path))
    if (is_hdf5(file) || is_npy_data(file)) found.push_back(file);
  ISOBAR_CHECK(found.size() == 1, path.string(), " holds ", found.size(),
               " files of volumes (.h5, or _data.npy beside _label.npy); a set is one of them");
  return found.front();
}

void check_pair(const VolumePair& pair) {
  ISOBAR_CHECK(pair.input->extent() == pair.target->extent(), pair.input->name(), " ", to_string(pair.input->shape()),
               " and ", pair.target->name(), " ", to_string(pair.target->shape()), " are not of one box");
  ISOBAR_CHECK(pair.input->boxes() == pair.target->boxes(), pair.input->name(), " has ", pair.input->boxes(),
               " boxes and ", pair.target->name(), " has ", pair.target->boxes());
}

VolumePair open_pair(const std::string& path, bool needs_target) {
  const fs::path file = volumes_at(path);
  VolumePair pair;
  if (is_npy_data(file)) {
    std::string label = file.string();
    label.replace(label.size() - std::string(kDataEnding).size(), std::string::npos, kLabelEnding);
    pair.input = std::make_unique<NpyVolume>(file.string());
    if (needs_target || fs::exists(label)) pair.target = std::make_unique<NpyVolume>(label);
  } else {
    const auto shared = std::make_shared<const hdf5::File>(hdf5::File::open(file.string()));
    const auto budget = std::make_shared<std::atomic<std::int64_t>>(kCachedVolumeBytes);
    pair.input = std::make_unique<StoredVolume>(shared, kInput, budget);
    if (needs_target || shared->has(kTarget)) pair.target = std::make_unique<StoredVolume>(shared, kTarget, budget);
  }
  if (pair.target) check_pair(pair);
  return pair;
}

}  // namespace

Volume::Volume(std::string name, const Shape& shape)
    : name_(std::move(name)), boxes_(shape.size() == 5 ? shape[0] : 1), shape_(shape.end() - 4, shape.end()) {
  ISOBAR_CHECK(std::ranges::all_of(shape, [](std::int64_t n) { return n >= 1; }), name_,
               " is empty: ", to_string(shape));
}

void Volume::read(std::int64_t box, const Point& start, const Point& size, float* out) const {
  ISOBAR_CHECK(box >= 0 && box < boxes_, name_, ": box ", box, " of ", boxes_, " is asked for");
  for (std::size_t axis = 0; axis < 3; ++axis)
    ISOBAR_CHECK(start[axis] >= 0 && size[axis] >= 1 && size[axis] <= extent()[axis] - start[axis], name_, ": points ",
                 start[axis], " to ", start[axis] + size[axis] - 1, " of axis ", axis, " are asked for, which has ",
                 extent()[axis]);
  pull(box, start, size, out);
  const std::span values(out, static_cast<std::size_t>(channels() * points_of(size)));
  const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return;
  const std::int64_t at = bad - values.begin(), point = at % points_of(size);
  const Point place{start[0] + point / (size[1] * size[2]), start[1] + point / size[2] % size[1],
                    start[2] + point % size[2]};
  throw_error(name_, ": the value of channel ", at / points_of(size), " at point (", place[0], ", ", place[1], ", ",
              place[2], ")", boxes_ > 1 ? concat(" of box ", box) : "", " is ", *bad);
}

void Volume::read_wrapped(std::int64_t box, const Point& start, const Point& size, float* out) const {
  std::array<std::vector<Stretch>, 3> parts;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t length = extent()[axis];
    ISOBAR_CHECK(start[axis] >= 0 && start[axis] < length && size[axis] <= length, name_, ": ", size[axis],
                 " points from point ", start[axis], " of axis ", axis, " are asked for, which has ", length);
    parts.at(axis) = stretches_of(start[axis], size[axis], length);
  }
  std::vector<float> part;
  for (const Stretch& d : parts[0])
    for (const Stretch& h : parts[1])
      for (const Stretch& w : parts[2]) {
        const Point count{d.count, h.count, w.count};
        if (count == size) return read(box, start, size, out);
        part.resize(static_cast<std::size_t>(channels() * points_of(count)));
        read(box, {d.from, h.from, w.from}, count, part.data());
        const float* from = part.data();
        for_each_line(channels(), count, [&](std::int64_t c, std::int64_t i, std::int64_t j) {
          const std::int64_t line = (c * size[0] + d.to + i) * size[1] + h.to + j;
          std::copy_n(from, w.count, out + line * size[2] + w.to);
          from += w.count;
        });
      }
}

VolumePair open_volumes(const std::string& path) {
  return open_pair(path, /*needs_target=*/true);
}

VolumePair open_volumes_to_predict(const std::string& path) {
  return open_pair(path, /*needs_target=*/false);
}

VolumePair in_memory(const VolumePair& stored) {
  return {in_memory(*stored.input), in_memory(*stored.target)};
}

VolumePair synthetic_volumes(const Point& extent, std::int64_t in_channels, std::int64_t out_channels,
                             std::uint64_t seed) {
  constexpr std::uint64_t kStream = 0;
  const std::int64_t points = points_of(extent);
  std::vector<float> input(static_cast<std::size_t>(in_channels * points));
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = 2 * to_uniform(random_bits(seed, kStream, i)) - 1;
  std::vector<float> target;
  for (std::int64_t c = 0; c < out_channels; ++c)
    for (std::int64_t i = 0; i < points; ++i)
      target.push_back(input[static_cast<std::size_t>(c % in_channels * points + i)] / 2);
  const auto make = [&](const char* name, std::int64_t channels, std::vector<float> values) {
    return std::make_unique<VolumeInMemory>(name, Shape{channels, extent[0], extent[1], extent[2]}, std::move(values));
  };
  return {make("the synthetic input", in_channels, std::move(input)),
          make("the synthetic target", out_channels, std::move(target))};
}

}  // namespace isobar
