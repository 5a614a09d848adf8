// Small grey images with one label each, from two IDX files: MNIST and data sets in its format.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/files/idx.h"

namespace isobar {

struct IdxFiles {
  std::string images, labels;  // paths
};

// {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte of a folder: the training files or the test files;
// each plain or, if that does not exist, with .gz. Error naming what is missing.
IdxFiles find_idx_files(const std::string& folder, bool train);

// The images of these files alone; Error if there are none.
std::string find_idx_images(const std::string& folder, bool train);

// What `isobar data info` says of a folder with such files, a line for each of the two sets that it has. None if it has
// neither. Error as for opening them.
std::optional<std::string> describe_idx_files(const std::string& folder);

// Images [N, height, width] of an IDX file; Error if it has other dimensions.
IdxArray read_idx_images(const std::string& path);

// All images are in memory, one byte per pixel.
class LabelledImages : public Dataset {
 public:
  // Images [N, height, width] and labels [N]; Error if a file has other dimensions, or the counts differ. Samples with
  // the label `ignored` get the label kIgnoredLabel (kernels/cross_entropy.h).
  explicit LabelledImages(const IdxFiles& files, std::optional<std::int64_t> ignored = {});

  std::string name() const override { return name_; }  // the path of the images
  std::int64_t samples() const override { return images_.shape[0]; }
  // "image" [1, height, width] fp32, the byte values 0 to 255; "label" [] i32, 0 to 255 or kIgnoredLabel.
  std::vector<TensorSpec> layout() const override;
  void read(const SampleKey& key, std::span<void* const> to) const override;

  std::int64_t height() const { return images_.shape[1]; }
  std::int64_t width() const { return images_.shape[2]; }
  std::int64_t classes() const { return classes_; }  // largest label that is not ignored + 1; 0 if there is none

 private:
  std::string name_;
  IdxArray images_, labels_;
  std::optional<std::int64_t> ignored_;
  std::int64_t classes_ = 0;
};

}  // namespace isobar
