#include "data/maps/grey_tile.h"

#include <algorithm>
#include <cstddef>

namespace isobar {

void draw_grey_tile(Image& picture, TilePlace place, std::span<const float> darkness, std::int64_t height,
                    std::int64_t width) {
  for (int y = 0; y < place.size; ++y) {
    for (int x = 0; x < place.size; ++x) {
      const std::int64_t row = y * height / place.size, column = x * width / place.size;
      const float value = darkness[static_cast<std::size_t>(row * width + column)];
      const auto grey = static_cast<std::uint8_t>(255.f - std::clamp(value, 0.f, 255.f));
      picture.at(place.left + x, place.top + y) = {grey, grey, grey};
    }
  }
}

}  // namespace isobar
