// A small grey image, drawn enlarged by nearest pixel: it shows exactly what a network reads.
#pragma once

#include <cstdint>
#include <span>

#include "data/maps/png.h"

namespace isobar {

// A square of the picture, in pixels.
struct TilePlace {
  int left = 0, top = 0, size = 0;
};

// darkness: [height, width], from 0 (white) to 255 (black); values beyond are clipped.
void draw_grey_tile(Image& picture, TilePlace place, std::span<const float> darkness, std::int64_t height,
                    std::int64_t width);

}  // namespace isobar
