#include "data/images/image_pairs.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <utility>

#include "data/files/visible_files.h"
#include "data/images/labelled_images.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

constexpr std::array<const char*, 2> kDatasets{"input", "target"};
constexpr std::int64_t kCachedBytes = std::int64_t{256} << 20;  // of decoded chunks, which hold several pictures

std::int64_t first_of(std::int64_t samples, std::optional<std::int64_t> limit, const std::string& name) {
  ISOBAR_CHECK(!limit || *limit <= samples, name, " has ", samples, " samples, but ", limit.value_or(0),
               " are asked for");
  return limit.value_or(samples);
}

std::vector<fs::path> files_at(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const fs::path& file : visible_files(path))
    if (file.extension() == ".h5" || file.extension() == ".hdf5") files.push_back(file);
  ISOBAR_CHECK(!files.empty(), path.string(), " holds no .h5 file");
  return files;
}

// [N, C, H, W] of a dataset.
Shape shape_in(const hdf5::File& file, const char* dataset) {
  ISOBAR_CHECK(file.has(dataset), file.path(), " has no dataset '", dataset, "'");
  const hdf5::DatasetInfo info = file.info(dataset);
  ISOBAR_CHECK(info.shape.size() == 4, file.path(), ": dataset '", dataset, "' has the shape ", to_string(info.shape),
               "; pictures have four dimensions: number, channels, height, width");
  ISOBAR_CHECK(info.type != hdf5::Type::text && info.type != hdf5::Type::other, file.path(), ": dataset '", dataset,
               "' holds no numbers, but ", info.type_name);
  return info.shape;
}

struct FileSizes {
  std::int64_t samples = 0;
  PairSizes pair;
};

FileSizes sizes_in(const hdf5::File& file, StoredTargets targets) {
  const Shape input = shape_in(file, kDatasets[0]);
  if (targets == StoredTargets::optional && !file.has(kDatasets[1]))
    return {input[0], {input[1], 0, input[2], input[3]}};
  const Shape target = shape_in(file, kDatasets[1]);
  ISOBAR_CHECK(input[0] == target[0] && input[2] == target[2] && input[3] == target[3], file.path(), ": 'input' ",
               to_string(input), " and 'target' ", to_string(target), " are not pairs of pictures of one size");
  return {input[0], {input[1], target[1], input[2], input[3]}};
}

}  // namespace

std::vector<TensorSpec> PairSizes::layout() const {
  std::vector<TensorSpec> layout{{.name = "input", .shape = input()}};
  if (out_channels > 0) layout.push_back({.name = "target", .shape = target()});
  return layout;
}

void ImagePairs::check_request(const SampleKey& key, std::size_t buffers) const {
  ISOBAR_CHECK(key.sample >= 0 && key.sample < samples(), name(), ": sample ", key.sample, " of ", samples(),
               " is asked for");
  ISOBAR_CHECK(buffers == layout().size(), name(), ": a sample has ", layout().size(), " tensors, but ", buffers,
               " buffers are given");
}

RandomPairs::RandomPairs(const PairSizes& sizes, std::int64_t samples, DataSplit split)
    : ImagePairs(sizes), samples_(samples), split_(split) {}

void RandomPairs::read(const SampleKey& key, std::span<void* const> to) const {
  check_request(key, to.size());
  const SampleKey own = key.of(split_);
  std::uint64_t number = 0;
  const std::vector<TensorSpec> tensors = layout();
  for (std::size_t t = 0; t < tensors.size(); ++t)
    for (std::int64_t i = 0; i < numel_of(tensors[t].shape); ++i)
      static_cast<float*>(to[t])[i] = own.random_uniform(number++);
}

StoredPairs::StoredPairs(const std::string& path, std::optional<std::int64_t> limit, StoredTargets targets)
    : StoredPairs(path, open(path, targets), limit) {}

StoredPairs::StoredPairs(const std::string& path, std::vector<Part> parts, std::optional<std::int64_t> limit)
    : ImagePairs(sizes_in(*parts.front().file, StoredTargets::optional).pair),
      path_(path),
      parts_(std::move(parts)),
      samples_(first_of(parts_.back().first + parts_.back().samples, limit, path)) {}

std::vector<StoredPairs::Part> StoredPairs::open(const std::string& path, StoredTargets targets) {
  std::vector<Part> parts;
  std::int64_t first = 0;
  const auto budget = std::make_shared<std::atomic<std::int64_t>>(kCachedBytes);
  for (const fs::path& name : files_at(path)) {
    auto file = std::make_unique<const hdf5::File>(hdf5::File::open(name.string()));
    const FileSizes sizes = sizes_in(*file, targets),
                    before = sizes_in(parts.empty() ? *file : *parts.front().file, targets);
    ISOBAR_CHECK(sizes.pair.input() == before.pair.input() && sizes.pair.target() == before.pair.target(), file->path(),
                 ": its pairs are ", to_string(sizes.pair.input()), " to ", to_string(sizes.pair.target()),
                 ", but those of ", parts.front().file->path(), " are ", to_string(before.pair.input()), " to ",
                 to_string(before.pair.target()));
    parts.push_back({std::move(file), {}, first, sizes.samples});
    Part& part = parts.back();
    for (std::size_t t = 0; t < sizes.pair.layout().size(); ++t)
      part.readers[t] = make_box_reader(*part.file, kDatasets[t], part.file->info(kDatasets[t]),
                                        {.budget = budget, .rows = "pictures"});
    first += sizes.samples;
  }
  ISOBAR_CHECK(first > 0, path, " holds no samples");
  return parts;
}

std::vector<std::string> StoredPairs::target_units() const {
  if (sizes().out_channels == 0) return {};
  return parts_.front().file->attribute_list(kDatasets[1], "units");
}

void StoredPairs::read(const SampleKey& key, std::span<void* const> to) const {
  check_request(key, to.size());
  const auto behind = std::ranges::upper_bound(parts_, key.sample, {}, &Part::first);
  const Part& part = *std::prev(behind);
  const std::vector<TensorSpec> tensors = layout();
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Shape& shape = tensors[t].shape;
    const std::array<std::int64_t, 4> start{key.sample - part.first, 0, 0, 0}, count{1, shape[0], shape[1], shape[2]};
    const std::span values(static_cast<float*>(to[t]), static_cast<std::size_t>(numel_of(shape)));
    part.readers[t]->read(start, count, values.data());
    const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
    ISOBAR_CHECK(bad == values.end(), part.file->path(), ": dataset '", kDatasets[t], "', sample ", start[0],
                 ", channel ", (bad - values.begin()) / (shape[1] * shape[2]), ": a value is ", *bad);
  }
}

NoisyPairs::NoisyPairs(const std::string& path, double sigma, DataSplit split, std::optional<std::int64_t> limit)
    : NoisyPairs(path, read_idx_images(path), sigma, split, limit) {}

NoisyPairs::NoisyPairs(const std::string& path, IdxArray images, double sigma, DataSplit split,
                       std::optional<std::int64_t> limit)
    : ImagePairs({.height = images.shape[1], .width = images.shape[2]}),
      path_(path),
      images_(std::move(images)),
      sigma_(sigma),
      split_(split),
      samples_(first_of(images_.shape[0], limit, path)) {}

void NoisyPairs::read(const SampleKey& key, std::span<void* const> to) const {
  check_request(key, to.size());
  const SampleKey own = key.of(split_);
  const std::int64_t pixels = numel_of(sizes().target());
  auto *input = static_cast<float*>(to[0]), *target = static_cast<float*>(to[1]);
  for (std::int64_t i = 0; i < pixels; ++i) {
    target[i] = static_cast<float>(images_.values[static_cast<std::size_t>(key.sample * pixels + i)]) / 255.f;
    input[i] = target[i] + static_cast<float>(sigma_ * own.random_normal(static_cast<std::uint64_t>(i)));
  }
}

}  // namespace isobar
