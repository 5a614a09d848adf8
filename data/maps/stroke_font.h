// Text in pictures: a small font of strokes (lines and curves), drawn with smooth edges at any size.
// ASCII 32-126 and the degree sign; anything else is drawn as '?'. Text is UTF-8.
#pragma once

#include <string_view>

#include "data/maps/png.h"

namespace isobar {

enum class Align { left, centre, right };

struct TextStyle {
  double size = 12;   // height of a capital, in pixels
  double weight = 1;  // 1: regular, 1.6: bold
  Rgb color = {32, 32, 32};
  Align align = Align::left;
};

// Width in pixels, without the space after the last letter.
double text_width(std::string_view text, const TextStyle& style);

// Draws on the baseline y, aligned at x. Text outside the picture is clipped.
void draw_text(Image& image, double x, double y, std::string_view text, const TextStyle& style);

}  // namespace isobar
