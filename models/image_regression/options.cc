#include "models/image_regression/options.h"

#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kMaxExtent = 1 << 20, kMaxSamples = 1 << 30;

}  // namespace

KeyTable ImageRegressionOptions::keys() {
  return {
      "The pairs of images",
      {key("images", images,
           "random: input and target are independent and uniform, new ones in every epoch; pairs: the datasets input "
           "and target [N, C, H, W] of HDF5 files; noisy: the target is an image of an IDX file (MNIST's), the input "
           "is the image with noise, which is another one in every epoch"),
       key("train_path", train_path,
           "the training images: a file or folder of .h5 files (pairs), or the folder of train-images-idx3-ubyte "
           "(noisy)")
           .path()
           .free_on_resume(),
       key("val_path", val_path, "the validation images, likewise (noisy: t10k-images-idx3-ubyte)")
           .path()
           .free_on_resume(),
       key("img_size", img_size, "rows and columns of an image; null: the data's, of random images 128 x 128")
           .within(1, kMaxExtent)
           .also_called({"imagesize"}),
       key("n_in_channels", n_in_channels, "channels of an input; null: the data's, of random images 1")
           .within(1, kMaxExtent)
           .also_called({"inchannels", "inchans"})
           .in_yaml({"in_chan"}),
       key("n_out_channels", n_out_channels, "channels of a target; null: the data's, of random images 1")
           .within(1, kMaxExtent)
           .also_called({"outchannels", "outchans"})
           .in_yaml({"out_chan"}),
       key("nsamples", nsamples, "training samples of an epoch: the first of the data; null: all, of random images 128")
           .within(1, kMaxSamples)
           .in_yaml({"Nsamples"}),
       key("nsamples_val", nsamples_val, "validation samples; null: all, of random images 128").within(1, kMaxSamples),
       key("sigma", sigma, "standard deviation of the noise of noisy images, whose values are 0 to 1").at_least(0)},
      [this](const KeyOrigins& origins) {
        check_paths(origins);
        if (!reads_files()) return;  // random images have every size
        check_filled("img_size", img_size.has_value(), origins);
        check_filled("n_in_channels", n_in_channels.has_value(), origins);
        check_filled("n_out_channels", n_out_channels.has_value(), origins);
        check_filled("nsamples", nsamples.has_value(), origins);
        check_filled("nsamples_val", nsamples_val.has_value(), origins);
      }};
}

void ImageRegressionOptions::check_paths(const KeyOrigins& origins) const {
  const char* source = name_of_enum(images);
  for (const auto& [name, path] : {std::pair("train_path", train_path), std::pair("val_path", val_path)}) {
    ISOBAR_CHECK(reads_files() || path.empty(), origins.where(name), " is ", path, ", but images are ", source,
                 ": set images=pairs or images=noisy to read files");
    ISOBAR_CHECK(!reads_files() || !path.empty(), origins.where(name), " is empty, but images are ", source,
                 ": name the data by --data DIR");
  }
}

}  // namespace isobar
