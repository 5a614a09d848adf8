// The size of a vision transformer: options of the config.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/keys.h"
#include "models/vit/vit.h"

namespace isobar {

inline constexpr std::int64_t kLargestExtent =
    std::int64_t{1}  // Max of any size in a config, so that products of sizes do not
    // overflow.
    << 20;

struct VitOptions {
  std::int64_t embed_dim = 384;
  std::int64_t depth = 12;
  std::int64_t num_heads = 8;
  std::optional<std::int64_t> patch_size = 8;  // null: derived from the image (default_patch_size)
  double dropout = 0.0;

  KeyTable keys();

  // The network of this size for these ports; the patch size must be known.
  VitConfig config(const Ports& ports) const;
};

// The largest of 8, 4, 2 that divides both sides and leaves at least 100 tokens, else 1.
std::int64_t default_patch_size(std::int64_t height, std::int64_t width);
// The same for sides that may be padded to multiples of the patch: where none of 8, 4, 2 divides both, the largest that
// leaves at least 100 tokens of the padded sides, else 1.
std::int64_t default_patch_size_padded(std::int64_t height, std::int64_t width);

}  // namespace isobar
