// Lines with smooth edges in pictures, in pixels.
#pragma once

#include <span>

#include "data/maps/png.h"

namespace isobar {

struct PenPoint {
  double x, y;
};
struct PenStroke {
  PenPoint from, to;
};

// Of a point from the nearest point of a line segment.
double distance(PenPoint point, const PenStroke& stroke);

// Blends a colour into a pixel: 0 keeps it, 1 replaces it.
void blend(Rgb& pixel, Rgb color, double share);

// Draws the line through the points, `width` pixels wide. What is outside the picture is clipped.
void draw_line(Image& image, std::span<const PenPoint> points, double width, Rgb color);

}  // namespace isobar
