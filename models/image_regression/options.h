// The pairs of images of a regression: options of the config.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/keys.h"

namespace isobar {

// Where the pairs come from (data/images/image_pairs.h).
enum class ImageSource : std::uint8_t { random, pairs, noisy };

template <>
struct EnumNames<ImageSource> {
  static constexpr std::array names{"random", "pairs", "noisy"};
};

// A size without a value is taken from the data; random images have the default.
struct ImageRegressionOptions {
  ImageSource images = ImageSource::random;
  std::string train_path, val_path;  // empty for random images
  std::optional<std::array<std::int64_t, 2>> img_size;
  std::optional<std::int64_t> n_in_channels, n_out_channels;
  std::optional<std::int64_t> nsamples, nsamples_val;
  double sigma = 0.5;

  KeyTable keys();

  // Throws Error unless there are paths exactly where images are read from files.
  void check_paths(const KeyOrigins& origins) const;
  bool reads_files() const { return images != ImageSource::random; }
};

}  // namespace isobar
