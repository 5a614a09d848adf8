// Pairs of pictures, the one to be computed from the other: "input" [C, H, W] and "target" [C', H, W], fp32. Random
// ones, those of HDF5 files, and small grey images with noise.
//
// Whatever is random in a pair is drawn from its key, and nothing of it is stored: a training set has other pictures in
// every epoch, a validation set has the same ones.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/files/hdf5.h"
#include "data/files/hdf5_box_reader.h"
#include "data/files/idx.h"

namespace isobar {

struct PairSizes {
  std::int64_t in_channels = 1, out_channels = 1, height = 0, width = 0;  // no out_channels: there is no target

  Shape input() const { return {in_channels, height, width}; }
  Shape target() const { return {out_channels, height, width}; }
  std::vector<TensorSpec> layout() const;
};

// A set of pairs of one size.
class ImagePairs : public Dataset {
 public:
  const PairSizes& sizes() const { return sizes_; }
  std::vector<TensorSpec> layout() const override { return sizes_.layout(); }
  virtual std::vector<std::string> target_units() const { return {}; }  // none: not known

 protected:
  explicit ImagePairs(const PairSizes& sizes) : sizes_(sizes) {}
  // Error unless the set has this sample, and there is a buffer for each tensor.
  void check_request(const SampleKey& key, std::size_t buffers) const;

 private:
  PairSizes sizes_;
};

// Input and target are independent, uniform in [0, 1).
class RandomPairs : public ImagePairs {
 public:
  RandomPairs(const PairSizes& sizes, std::int64_t samples, DataSplit split);

  std::string name() const override { return "the random images"; }
  std::int64_t samples() const override { return samples_; }
  void read(const SampleKey& key, std::span<void* const> to) const override;

 private:
  std::int64_t samples_;
  DataSplit split_;
};

// Whether files without a dataset `target` are an error.
enum class StoredTargets : std::uint8_t { required, optional };

// The datasets `input` [N, C, H, W] and `target` [N, C', H, W] of HDF5 files, of any number type.
class StoredPairs : public ImagePairs {
 public:
  // path: a file, or a folder whose *.h5 and *.hdf5 files follow each other in the order of their names. limit: only
  // the first samples. Error, with file and dataset, for a file without these datasets, for other dimensions, and for
  // files of different sizes.
  explicit StoredPairs(const std::string& path, std::optional<std::int64_t> limit = {},
                       StoredTargets targets = StoredTargets::required);

  std::string name() const override { return path_; }
  std::int64_t samples() const override { return samples_; }
  std::vector<std::string> target_units() const override;
  // Error, with file, dataset and sample, if a value is not finite.
  void read(const SampleKey& key, std::span<void* const> to) const override;

 private:
  struct Part {
    std::unique_ptr<const hdf5::File> file;
    std::array<std::unique_ptr<BoxReader>, 2> readers;  // of `input` and `target`, if there is one
    std::int64_t first = 0, samples = 0;
  };
  StoredPairs(const std::string& path, std::vector<Part> parts, std::optional<std::int64_t> limit);
  static std::vector<Part> open(const std::string& path, StoredTargets targets);

  std::string path_;
  std::vector<Part> parts_;
  std::int64_t samples_;
};

// Images of an IDX file (MNIST's), scaled to [0, 1], are the targets; the input is the target with normal noise.
class NoisyPairs : public ImagePairs {
 public:
  // sigma: of the noise. limit: only the first samples.
  NoisyPairs(const std::string& path, double sigma, DataSplit split, std::optional<std::int64_t> limit = {});

  std::string name() const override { return path_; }
  std::int64_t samples() const override { return samples_; }
  void read(const SampleKey& key, std::span<void* const> to) const override;

 private:
  NoisyPairs(const std::string& path, IdxArray images, double sigma, DataSplit split,
             std::optional<std::int64_t> limit);

  std::string path_;
  IdxArray images_;
  double sigma_;
  DataSplit split_;
  std::int64_t samples_;
};

}  // namespace isobar
