#include "models/classification/options.h"

namespace isobar {

KeyTable ClassificationOptions::keys() {
  constexpr double kMaxClasses = 256;  // labels are bytes
  return {
      "The images",
      {key("images_path", images_path,
           "folder of the four IDX files of MNIST and its like (train- and t10k-, images-idx3-ubyte and "
           "labels-idx1-ubyte), plain or .gz; the t10k images are the validation set")
           .path()
           .free_on_resume(),
       key("test_images_path", test_images_path,
           "folder of two files more, named as the t10k ones, for a set that is scored once at the end of a run, with "
           "the best weights; empty: none")
           .path()
           .free_on_resume(),
       key("classes", classes, "how many kinds of images there are; null: the largest label of the data + 1")
           .within(2, kMaxClasses)
           .also_called({"numclasses", "nclasses"}),
       key("ignored_label", ignored_label,
           "images of this label are neither trained on nor judged: the loss is the mean over the others; null: none")
           .within(0, kMaxClasses - 1)
           .also_called({"ignoreindex", "ignorelabel"})},
      [this](const KeyOrigins& origins) { check_filled("classes", classes.has_value(), origins); }};
}

}  // namespace isobar
