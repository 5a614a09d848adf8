// What images are classified, as a config gives it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/keys.h"

namespace isobar {

struct ClassificationOptions {
  std::string images_path = "data/mnist";
  std::optional<std::int64_t> classes;

  KeyTable keys();
};

}  // namespace isobar
