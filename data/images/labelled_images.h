// Small grey images with a label each, from two IDX files: MNIST and what is published like it.
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

// {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte of a folder, the training files or those for tests;
// each as it is or, where that does not exist, with .gz. An Error that names what is missing.
IdxFiles find_idx_files(const std::string& folder, bool train);

// All images are kept in memory, a byte a pixel.
class LabelledImages : public Dataset {
 public:
  // Images [N, H, W] and labels [N]; an Error where a file has other dimensions, or their counts differ. Samples with
  // the label `ignored` are given the label kIgnoredLabel (kernels/cross_entropy.h).
  explicit LabelledImages(const IdxFiles& files, std::optional<std::int64_t> ignored = {});

  std::string name() const override { return name_; }  // the path of the images
  std::int64_t samples() const override { return images_.shape[0]; }
  // "image" [1, H, W] fp32, the bytes' values from 0 to 255; "label" [] i32, from 0 to 255, or kIgnoredLabel.
  std::vector<TensorSpec> layout() const override;
  void read(const SampleKey& key, std::span<void* const> to) const override;

  std::int64_t height() const { return images_.shape[1]; }
  std::int64_t width() const { return images_.shape[2]; }
  std::int64_t classes() const { return classes_; }  // the largest label that counts + 1; 0 where none does

 private:
  std::string name_;
  IdxArray images_, labels_;
  std::optional<std::int64_t> ignored_;
  std::int64_t classes_ = 0;
};

}  // namespace isobar
