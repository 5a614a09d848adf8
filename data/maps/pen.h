// Lines with smooth edges in pictures, in pixels.
#pragma once

#include <span>

#include "data/maps/png.h"

namespace isobar {

inline constexpr Rgb kInk{38, 38, 38};    // of text
inline constexpr Rgb kFrame{90, 90, 90};  // of lines round pictures

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
