// How one forward pass runs: whether it trains, and where its random masks come from.
#pragma once

#include <cstdint>

#include "engine/ops.h"

namespace isobar {

struct Context {
  bool training = false;  // dropout and drop path are applied
  // Mask n of the pass is drawn with the key {seed, stream + n}. Passes need streams at least 2^16 apart.
  DropoutKey masks;

  DropoutKey mask(std::uint64_t n) const { return {masks.seed, masks.stream + n}; }
  float rate(double p) const { return training ? static_cast<float>(p) : 0; }  // p in training, else 0

  // The same pass for a part of the network whose mask 0 is this one's mask n. A layer counts its masks from 0 (kMasks
  // of them), and whoever contains it gives it a range of its own.
  Context masks_from(std::uint64_t n) const { return {training, mask(n)}; }
};

}  // namespace isobar
