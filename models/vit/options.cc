#include "models/vit/options.h"

#include <array>

#include "kernels/common/check.h"
#include "kernels/common/math.h"

namespace isobar {

namespace {

constexpr double kMaxLayers =
    // Far above any model; a pass has mask numbers for 8190 stages (models/pass.h).
    8000;

constexpr std::array<std::int64_t, 3> kDefaultPatches{8, 4, 2};  // where no patch is named; the last divides the others
constexpr std::int64_t kMinTokens = 100;

}  // namespace

KeyTable VitOptions::keys() {
  return {"The vision transformer",
          {key("embed_dim", embed_dim, "width of a token")
               .within(1, kLargestExtent)
               .also_called({"hiddensize", "hiddendim", "dmodel", "width"}),
           key("depth", depth, "number of transformer blocks")
               .within(1, kMaxLayers)
               .also_called({"layers", "numlayers", "nlayers", "blocks"}),
           key("num_heads", num_heads, "attention heads; embed_dim / num_heads must be a multiple of 8, at most 128")
               .within(1, kLargestExtent)
               .also_called({"heads", "nhead", "nheads"}),
           key("patch_size", patch_size,
               "side of the square of grid points that makes a token; null: the largest of 8, 4, 2 that divides both "
               "sides and leaves at least 100 tokens, else 1; with pad_grid, of the padded sides where none divides")
               .within(1, kLargestExtent)
               .also_called({"patch"}),
           key("dropout", dropout, "dropout and attention dropout, and the drop-path rate of the last block")
               .fraction()
               .also_called({"droprate"})},
          [this](const KeyOrigins& origins) {
            check_filled("patch_size", patch_size.has_value(), origins);
            ISOBAR_CHECK(embed_dim % num_heads == 0, origins.where("embed_dim"), " must be a multiple of num_heads (",
                         num_heads, "), not ", embed_dim);
            const std::int64_t head_dim = embed_dim / num_heads;
            ISOBAR_CHECK(head_dim % 8 == 0 && head_dim <= 128, origins.where("embed_dim"),
                         " divided by num_heads must be a multiple of 8 up to 128, not ", head_dim);
          }};
}

VitConfig VitOptions::config(const Ports& ports) const {
  VitConfig config{.height = ports.in[1],
                   .width = ports.in[2],
                   .patch = *patch_size,
                   .in_channels = ports.in[0],
                   .embed = embed_dim,
                   .depth = depth,
                   .heads = num_heads,
                   .dropout = dropout,
                   .zero_head = ports.starts_at_zero};
  (ports.are_fields() ? config.out_channels : config.classes) = ports.out[0];
  return config;
}

std::int64_t default_patch_size(std::int64_t height, std::int64_t width) {
  for (const std::int64_t patch : kDefaultPatches) {
    const bool divides = height % patch == 0 && width % patch == 0;
    if (divides && (height / patch) * (width / patch) >= kMinTokens) return patch;
  }
  return 1;
}

std::int64_t default_patch_size_padded(std::int64_t height, std::int64_t width) {
  if (height % kDefaultPatches.back() == 0 && width % kDefaultPatches.back() == 0)
    return default_patch_size(height, width);
  for (const std::int64_t patch : kDefaultPatches)
    if (ceil_div(height, patch) * ceil_div(width, patch) >= kMinTokens) return patch;
  return 1;
}

}  // namespace isobar
