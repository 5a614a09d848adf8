#include "data/volumes/volume.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <span>
#include <utility>

#include "data/files/box_reader.h"
#include "data/files/hdf5.h"
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
constexpr std::int64_t kCachedBytes = std::int64_t{256} << 20;  // of decoded chunks

std::int64_t points_of(const Point& size) {
  return size[0] * size[1] * size[2];
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
    ISOBAR_CHECK(info.shape.size() == 4, file.path(), ": dataset '", dataset, "' has the shape ", to_string(info.shape),
                 "; volumes have four dimensions: channels, depth, height, width");
    return info.shape;
  }
  void pull(const Point& start, const Point& size, float* out) const override {
    const std::array<std::int64_t, 4> from{0, start[0], start[1], start[2]};
    const std::array<std::int64_t, 4> count{channels(), size[0], size[1], size[2]};
    reader_->read(from, count, out);
  }

  const std::shared_ptr<const hdf5::File> file_;
  const std::string dataset_;
  const std::unique_ptr<BoxReader> reader_;
};

// [D, H, W, C] in a .npy file.
class NpyVolume : public Volume {
 public:
  explicit NpyVolume(const std::string& path) : NpyVolume(path, NpyFile(path)) {}

 private:
  NpyVolume(const std::string& path, NpyFile file) : Volume(path, shape_in(path, file)), file_(std::move(file)) {}

  static Shape shape_in(const std::string& path, const NpyFile& file) {
    const Shape& shape = file.shape();
    ISOBAR_CHECK(shape.size() == 4, path, " has the shape ", to_string(shape),
                 "; volumes have four dimensions: depth, height, width, channels");
    return {shape[3], shape[0], shape[1], shape[2]};
  }
  void pull(const Point& start, const Point& size, float* out) const override {
    const Point all = extent();
    std::vector<float> line(static_cast<std::size_t>(size[2] * channels()));
    for (std::int64_t i = 0; i < size[0]; ++i)
      for (std::int64_t j = 0; j < size[1]; ++j) {
        const std::int64_t first = ((start[0] + i) * all[1] + start[1] + j) * all[2] + start[2];
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
  VolumeInMemory(std::string name, Shape shape, std::vector<float> values)
      : Volume(std::move(name), std::move(shape)), values_(std::move(values)) {}

 private:
  void pull(const Point& start, const Point& size, float* out) const override {
    const Point all = extent();
    for (std::int64_t c = 0; c < channels(); ++c)
      for (std::int64_t i = 0; i < size[0]; ++i)
        for (std::int64_t j = 0; j < size[1]; ++j) {
          const std::int64_t first = ((c * all[0] + start[0] + i) * all[1] + start[1] + j) * all[2] + start[2];
          out = std::copy_n(values_.begin() + first, size[2], out);
        }
  }

  const std::vector<float> values_;
};

std::unique_ptr<const Volume> in_memory(const Volume& stored) {
  std::vector<float> values(static_cast<std::size_t>(checked_product(stored.shape(), stored.name())));
  stored.read({}, stored.extent(), values.data());
  return std::make_unique<VolumeInMemory>(stored.name(), stored.shape(), std::move(values));
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
    const auto budget = std::make_shared<std::atomic<std::int64_t>>(kCachedBytes);
    pair.input = std::make_unique<StoredVolume>(shared, kInput, budget);
    if (needs_target || shared->has(kTarget)) pair.target = std::make_unique<StoredVolume>(shared, kTarget, budget);
  }
  if (pair.target) check_pair(pair);
  return pair;
}

}  // namespace

Volume::Volume(std::string name, Shape shape) : name_(std::move(name)), shape_(std::move(shape)) {
  ISOBAR_CHECK(std::ranges::all_of(shape_, [](std::int64_t n) { return n >= 1; }), name_,
               " is empty: ", to_string(shape_));
}

void Volume::read(const Point& start, const Point& size, float* out) const {
  for (std::size_t axis = 0; axis < 3; ++axis)
    ISOBAR_CHECK(start[axis] >= 0 && size[axis] >= 1 && size[axis] <= extent()[axis] - start[axis], name_, ": points ",
                 start[axis], " to ", start[axis] + size[axis] - 1, " of axis ", axis, " are asked for, which has ",
                 extent()[axis]);
  pull(start, size, out);
  const std::span values(out, static_cast<std::size_t>(channels() * points_of(size)));
  const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return;
  const std::int64_t at = bad - values.begin(), point = at % points_of(size);
  const Point place{start[0] + point / (size[1] * size[2]), start[1] + point / size[2] % size[1],
                    start[2] + point % size[2]};
  throw_error(name_, ": the value of channel ", at / points_of(size), " at point (", place[0], ", ", place[1], ", ",
              place[2], ") is ", *bad);
}

void Volume::read_wrapped(const Point& start, const Point& size, float* out) const {
  for (std::size_t axis = 0; axis < 3; ++axis)
    ISOBAR_CHECK(start[axis] >= 0 && start[axis] < extent()[axis] && size[axis] <= extent()[axis], name_, ": ",
                 size[axis], " points from point ", start[axis], " of axis ", axis, " are asked for, which has ",
                 extent()[axis]);
  // Along each axis the points before the end, and those from the beginning on.
  Point before;
  for (std::size_t axis = 0; axis < 3; ++axis) before[axis] = std::min(size[axis], extent()[axis] - start[axis]);
  if (before == size) return read(start, size, out);
  std::vector<float> part;
  for (int corner = 0; corner < 8; ++corner) {
    Point from = start, to{}, count = before;
    for (std::size_t axis = 0; axis < 3; ++axis)
      if ((corner >> axis & 1) != 0) {
        from[axis] = 0;
        to[axis] = before[axis];
        count[axis] = size[axis] - before[axis];
      }
    if (points_of(count) == 0) continue;
    part.resize(static_cast<std::size_t>(channels() * points_of(count)));
    read(from, count, part.data());
    const float* line = part.data();
    for (std::int64_t c = 0; c < channels(); ++c)
      for (std::int64_t i = 0; i < count[0]; ++i)
        for (std::int64_t j = 0; j < count[1]; ++j, line += count[2])
          std::copy_n(line, count[2], out + ((c * size[0] + to[0] + i) * size[1] + to[1] + j) * size[2] + to[2]);
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
