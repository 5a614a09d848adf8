#include "models/volume_regression/options.h"

#include <utility>
#include <variant>

#include "kernels/common/check.h"
#include "kernels/mean_loss.h"

namespace isobar {
namespace {

constexpr double kMaxExtent = 1 << 14, kMaxSamples = 1 << 30;

}  // namespace

KeyTable VolumeRegressionOptions::keys() {
  return {
      "The volumes",
      {key("volumes", volumes,
           "file: the datasets Nbody [C, L, L, L] and Hydro [C', L, L, L] of an HDF5 file, or X_data.npy and "
           "X_label.npy [L, L, L, C], of which only the crops are read; memory: the same, read once; synthetic: random "
           "ones, whose target is half of the input"),
       key("train_path", train_path,
           "the training volumes: a .h5 file, an X_data.npy beside its X_label.npy, or a folder with one of them")
           .path()
           .free_on_resume(),
       key("val_path", val_path, "the validation volumes, likewise").path().free_on_resume(),
       key("data_size", data_size,
           "points along each axis of a sample, which is a crop of the volumes; or three numbers, for depth, height "
           "and "
           "width")
           .within(1, kMaxExtent)
           .also_called({"cropsize"}),
       key("crops", crops,
           "random: anywhere; tutorial: where NERSC's tutorial with DALI has them, from NumPy's RandomState(12345)"),
       key("wrap", wrap,
           "the volumes are periodic: crops begin at every point, and go on at the other end; false: crops lie within"),
       key("augment", augment,
           "how a crop is turned: physical: by one of the 48 symmetries of a cube, vectors with it; tutorial: by one "
           "of 24, vectors stay; none; a crop that is no cube: by those of them that keep its extents"),
       key("n_in_channels", n_in_channels, "channels of the input; null: the data's, of synthetic volumes 4")
           .within(1, kMeanLossChannels)
           .also_called({"inchannels", "inchans"}),
       key("n_out_channels", n_out_channels, "channels of the target; null: the data's, of synthetic volumes 5")
           .within(1, kMeanLossChannels)
           .also_called({"outchannels", "outchans"})
           .in_yaml({"N_out_channels"}),
       key("nsamples", nsamples, "training samples of an epoch: crops").within(1, kMaxSamples).in_yaml({"Nsamples"}),
       key("nsamples_val", nsamples_val, "validation samples, the same in every validation")
           .within(1, kMaxSamples)
           .in_yaml({"Nsamples_val"}),
       key("lambda_rho", lambda_rho,
           "weight of the density in the loss: of the mean of |exp(14 p) - exp(14 t)| of channel 0, beside the mean of "
           "|p - t| of all")
           .at_least(0)},
      [this](const KeyOrigins& origins) {
        check_paths(origins);
        if (!reads_files()) return;  // synthetic volumes have every size
        check_filled("n_in_channels", n_in_channels.has_value(), origins);
        check_filled("n_out_channels", n_out_channels.has_value(), origins);
      }};
}

Point VolumeRegressionOptions::size_of_crop() const {
  if (const auto* cube = std::get_if<std::int64_t>(&data_size)) return {*cube, *cube, *cube};
  return std::get<Point>(data_size);
}

void VolumeRegressionOptions::check_paths(const KeyOrigins& origins) const {
  const char* source = name_of_enum(volumes);
  for (const auto& [name, path] : {std::pair("train_path", train_path), std::pair("val_path", val_path)}) {
    ISOBAR_CHECK(reads_files() || path.empty(), origins.where(name), " is ", path, ", but volumes are ", source,
                 ": set volumes=file or volumes=memory to read files");
    ISOBAR_CHECK(!reads_files() || !path.empty(), origins.where(name), " is empty, but volumes are ", source,
                 ": name the data by --data DIR");
  }
}

}  // namespace isobar
