// The images to classify: options of the config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/keys.h"

namespace isobar {

struct ClassificationOptions {
  std::string images_path = "data/mnist";
  std::string test_images_path;  // empty: no test set
  std::optional<std::int64_t> classes;
  std::optional<std::int64_t> ignored_label;

  KeyTable keys();

  bool has_test() const { return !test_images_path.empty(); }
};

}  // namespace isobar
