#include "data/maps/pen.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace isobar {

double distance(PenPoint point, const PenStroke& stroke) {
  const double dx = stroke.to.x - stroke.from.x, dy = stroke.to.y - stroke.from.y;
  const double length = dx * dx + dy * dy;
  const double along = length > 0 ? ((point.x - stroke.from.x) * dx + (point.y - stroke.from.y) * dy) / length : 0;
  const double t = std::clamp(along, 0.0, 1.0);
  return std::hypot(point.x - stroke.from.x - t * dx, point.y - stroke.from.y - t * dy);
}

void blend(Rgb& pixel, Rgb color, double share) {
  const auto mix = [share](std::uint8_t a, std::uint8_t b) {
    return static_cast<std::uint8_t>(std::lround(a + share * (b - a)));
  };
  pixel = {mix(pixel.r, color.r), mix(pixel.g, color.g), mix(pixel.b, color.b)};
}

void draw_line(Image& image, std::span<const PenPoint> points, double width, Rgb color) {
  const double radius = width / 2;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const PenStroke stroke{points[i - 1], points[i]};
    const auto [left, right] = std::minmax(stroke.from.x, stroke.to.x);
    const auto [top, bottom] = std::minmax(stroke.from.y, stroke.to.y);
    const int first_x = std::max(static_cast<int>(left - radius - 1), 0),
              last_x = std::min(static_cast<int>(right + radius + 1), image.width - 1),
              first_y = std::max(static_cast<int>(top - radius - 1), 0),
              last_y = std::min(static_cast<int>(bottom + radius + 1), image.height - 1);
    for (int y = first_y; y <= last_y; ++y)
      for (int x = first_x; x <= last_x; ++x)
        blend(image.at(x, y), color, std::clamp(radius - distance({x + 0.5, y + 0.5}, stroke) + 0.5, 0.0, 1.0));
  }
}

}  // namespace isobar
