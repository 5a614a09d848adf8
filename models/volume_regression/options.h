// The volumes of a regression, and its loss: options of the config.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "data/volumes/crops.h"
#include "engine/keys.h"

namespace isobar {

// Where the volumes come from (data/volumes/volume.h).
enum class VolumeSource : std::uint8_t { file, memory, synthetic };

template <>
struct EnumNames<VolumeSource> {
  static constexpr std::array names{"file", "memory", "synthetic"};
};

// A number of channels without a value is taken from the data; synthetic volumes have the reference's.
struct VolumeRegressionOptions {
  VolumeSource volumes = VolumeSource::file;
  std::string train_path, val_path;  // empty for synthetic volumes
  PerAxis data_size = 64;
  bool wrap = false;
  CropRule crops = CropRule::random;
  Augmentation augment = Augmentation::physical;
  std::optional<std::int64_t> n_in_channels, n_out_channels;
  std::int64_t nsamples = 65536, nsamples_val = 8192;
  double lambda_rho = 0;

  KeyTable keys();

  Point size_of_crop() const;

  // Throws Error unless there are paths exactly where volumes are read from files.
  void check_paths(const KeyOrigins& origins) const;
  bool reads_files() const { return volumes != VolumeSource::synthetic; }
};

}  // namespace isobar
