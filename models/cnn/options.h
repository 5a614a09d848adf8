// The size of a convolutional network: options of the config.
#pragma once

#include <cstdint>

#include "engine/keys.h"
#include "models/cnn/cnn.h"
#include "models/convolutional.h"

namespace isobar {

struct CnnOptions {
  std::int64_t width = 64;
  std::int64_t depth = 5;
  EdgeWords edge = {};
  bool activate_output = false;

  KeyTable keys();

  CnnConfig config() const;
};

}  // namespace isobar
