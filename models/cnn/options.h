// The size of a convolutional network: options of the config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/keys.h"
#include "models/cnn/cnn.h"

namespace isobar {

struct CnnOptions {
  std::int64_t width = 64;
  std::int64_t depth = 5;
  std::optional<std::vector<std::string>> edge;  // null: zeros everywhere
  bool activate_output = false;

  KeyTable keys();

  CnnConfig config() const;
};

}  // namespace isobar
