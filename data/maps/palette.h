// The 256 colours that a picture is drawn with where a format has no more.
#pragma once

#include <cstdint>
#include <vector>

#include "data/maps/png.h"

namespace isobar {

struct PaletteImage {
  std::vector<Rgb> colors;            // 1 to 256
  std::vector<std::uint8_t> indices;  // [height, width]
};

// Exact if the picture has at most 256 colours; else by median cut (Heckbert 1982): the box of colours in which the
// widest channel times the pixels is largest is cut at the median of that channel, until there are 256 boxes; each is
// drawn in the mean of its pixels.
PaletteImage with_palette(const Image& image);

}  // namespace isobar
