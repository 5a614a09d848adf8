#include "data/images/labelled_images.h"

#include <algorithm>
#include <filesystem>

#include "kernels/common/check.h"
#include "kernels/cross_entropy.h"

namespace isobar {
namespace {

// The path of a file in a folder, plain or with .gz; empty if neither exists.
std::string find_file(const std::filesystem::path& folder, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    const std::filesystem::path path = folder / (name + ending);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path.string();
  }
  return {};
}

IdxArray read_array(const std::string& path, std::size_t dimensions, const char* what) {
  IdxArray array = read_idx(path);
  ISOBAR_CHECK(array.shape.size() == dimensions, path, " has the shape ", to_string(array.shape), "; ", what);
  return array;
}

std::string name_of_file(bool train, const char* what) {
  return std::string(train ? "train" : "t10k") + what;
}

std::string images_name_of(bool train) {
  return name_of_file(train, "-images-idx3-ubyte");
}

}  // namespace

IdxFiles find_idx_files(const std::string& folder, bool train) {
  const std::string images_name = images_name_of(train), labels_name = name_of_file(train, "-labels-idx1-ubyte");
  IdxFiles files{.images = find_file(folder, images_name), .labels = find_file(folder, labels_name)};
  std::string missing;
  if (files.images.empty()) missing = images_name;
  if (files.labels.empty()) missing += (missing.empty() ? "" : " and ") + labels_name;
  ISOBAR_CHECK(missing.empty(), folder, " lacks ", missing, " (looked for with and without .gz)");
  return files;
}

std::string find_idx_images(const std::string& folder, bool train) {
  const std::string path = find_file(folder, images_name_of(train));
  ISOBAR_CHECK(!path.empty(), folder, " lacks ", images_name_of(train), " (looked for with and without .gz)");
  return path;
}

std::optional<std::string> describe_idx_files(const std::string& folder) {
  std::string sets;
  for (const bool train : {true, false}) {
    if (find_file(folder, images_name_of(train)).empty()) continue;
    const LabelledImages images(find_idx_files(folder, train));
    sets += concat(name_of_file(train, ": "), images.samples(), " images of ", images.height(), " x ", images.width(),
                   " pixels, labels 0 to ", images.classes() - 1, '\n');
  }
  if (sets.empty()) return std::nullopt;
  return concat(folder, ": labelled images in IDX files\n", sets,
                "they are classified by: isobar train --config mnist --data ", folder, '\n');
}

IdxArray read_idx_images(const std::string& path) {
  return read_array(path, 3, "images have three dimensions: number, height, width");
}

LabelledImages::LabelledImages(const IdxFiles& files, std::optional<std::int64_t> ignored)
    : name_(files.images),
      images_(read_idx_images(files.images)),
      labels_(read_array(files.labels, 1, "labels have one dimension")),
      ignored_(ignored) {
  for (const std::int64_t label : labels_.values)
    if (label != ignored_) classes_ = std::max(classes_, label + 1);
  ISOBAR_CHECK(images_.shape[0] == labels_.shape[0], files.images, " has ", images_.shape[0], " images, but ",
               files.labels, " has ", labels_.shape[0], " labels");
}

std::vector<TensorSpec> LabelledImages::layout() const {
  return {{.name = "image", .shape = {1, height(), width()}, .dtype = DType::fp32},
          {.name = "label", .shape = {}, .dtype = DType::i32}};
}

void LabelledImages::read(const SampleKey& key, std::span<void* const> to) const {
  const std::int64_t sample = key.sample;
  ISOBAR_CHECK(sample >= 0 && sample < samples(), name_, ": image ", sample, " of ", samples(), " is asked for");
  ISOBAR_CHECK(to.size() == 2, name_, ": a sample has 2 tensors, but ", to.size(), " buffers are given");
  const std::int64_t pixels = height() * width();
  std::copy_n(images_.values.begin() + sample * pixels, pixels, static_cast<float*>(to[0]));
  const std::int32_t label = labels_.values[static_cast<std::size_t>(sample)];
  *static_cast<std::int32_t*>(to[1]) = label == ignored_ ? kIgnoredLabel : label;
}

}  // namespace isobar
