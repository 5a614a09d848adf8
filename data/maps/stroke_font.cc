#include "data/maps/stroke_font.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "data/maps/pen.h"

namespace isobar {
namespace {

// The strokes of a glyph on a grid: the baseline is at 0, capitals are 12 high, small letters 8.5, descenders reach -4.
// Strokes are separated by '|', points are "x,y". A stroke is a polyline. With a leading '~' its points are the control
// points of a curve that begins at the first and ends at the last of them; with 'o' the curve is closed. A curve
// touches the middle of each line between two control points: the four corners of a box give an oval.
struct GlyphSource {
  double width;
  const char* strokes;
};

constexpr char kFirst = ' ', kLast = '~';
constexpr std::size_t kDegreeSign = kLast - kFirst + 1;
constexpr std::array<GlyphSource, kDegreeSign + 1> kGlyphs{{
    {2.5, ""},                                                                                                 // space
    {0, "0,12 0,4|0,0 0,0"},                                                                                   // !
    {3, "0,12 0,9|3,12 3,9"},                                                                                  // "
    {9, "3.5,12 2,0|7.3,12 5.8,0|0.6,8 9,8|0,4 8.4,4"},                                                        // #
    {8, "~7.7,9.3 7.7,11.4 0.3,11.4 0.3,6.4 7.9,5.8 7.9,0.6 0,0.6 0,2.9|4,13.5 4,-1.5"},                       // $
    {11, "o0,6.4 0,12 4.4,12 4.4,6.4|o6.6,0 6.6,5.6 11,5.6 11,0|9,12 2,0"},                                    // %
    {9, "9,0 2.5,7.6|~2.5,7.6 -0.2,12 6.6,12 7.2,7.4 0,6.4 0,0 8,0 8.4,5.4"},                                  // &
    {0, "0,12 0,9"},                                                                                           // '
    {2.5, "~2.5,13.2 0,10 0,0 2.5,-3.2"},                                                                      // (
    {2.5, "~0,13.2 2.5,10 2.5,0 0,-3.2"},                                                                      // )
    {5, "2.5,12 2.5,7|0.3,10.8 4.7,8.2|4.7,10.8 0.3,8.2"},                                                     // *
    {7, "0,5 7,5|3.5,1.5 3.5,8.5"},                                                                            // +
    {1, "1,0.3 0.2,-2.4"},                                                                                     // ,
    {5, "0,5 5,5"},                                                                                            // -
    {0, "0,0 0,0"},                                                                                            // .
    {5, "0,-1.5 5,13"},                                                                                        // /
    {7, "o0,0 0,12 7,12 7,0"},                                                                                 // 0
    {7, "1,9.4 4,12 4,0"},                                                                                     // 1
    {7, "~0.3,9 0.3,12 6.8,12 6.8,7 3.5,3.8 0,0|0,0 7,0"},                                                     // 2
    {7, "~0.4,9.6 0.4,12 6.6,12 6.6,6.4 2.8,6.4|~2.8,6.4 7,6.4 7,0 0,0 0,2.6"},                                // 3
    {7, "5.3,0 5.3,12 0,3.5 7.2,3.5"},                                                                         // 4
    {7, "6.5,12 1.1,12 0.5,6.6|~0.5,6.6 1.6,8 7,8 7,0 0,0 0,2.5"},                                             // 5
    {7, "o0,0 0,7.4 7,7.4 7,0|~0,3.7 0,12 6.5,12 6.5,9.6"},                                                    // 6
    {7, "0,12 7,12 2.5,0"},                                                                                    // 7
    {7, "o0.5,6.4 0.5,12 6.5,12 6.5,6.4|o0,0 0,6.4 7,6.4 7,0"},                                                // 8
    {7, "o7,12 7,4.6 0,4.6 0,12|~7,8.3 7,0 0.5,0 0.5,2.4"},                                                    // 9
    {0, "0,0 0,0|0,7.5 0,7.5"},                                                                                // :
    {1, "1,7.5 1,7.5|1,0.3 0.2,-2.4"},                                                                         // ;
    {7, "7,9 0,5 7,1"},                                                                                        // <
    {7, "0,7 7,7|0,3 7,3"},                                                                                    // =
    {7, "0,9 7,5 0,1"},                                                                                        // >
    {6.4, "~0,9.4 0,12 6.4,12 6.4,7 3.2,7 3.2,4|3.2,0 3.2,0"},                                                 // ?
    {12, "o3.5,2.8 3.5,8.6 8.5,8.6 8.5,2.8|~8.5,8.4 8.5,2.4 12,2.4 12,12 0,12 0,-2.5 9.5,-2.5"},               // @
    {9, "0,0 4.5,12 9,0|1.7,4.4 7.3,4.4"},                                                                     // A
    {8, "0,6.3 0,12 4.5,12|~4.5,12 7.5,12 7.5,6.3 4.5,6.3|4.5,6.3 0,6.3 0,0 4.5,0|~4.5,0 8,0 8,6.3 4.5,6.3"},  // B
    {8.8, "~8.8,9 8.8,12 0,12 0,0 8.8,0 8.8,3"},                                                               // C
    {9, "3.8,0 0,0 0,12 3.8,12|~3.8,12 9,12 9,0 3.8,0"},                                                       // D
    {7, "7,12 0,12 0,0 7,0|0,6.3 6,6.3"},                                                                      // E
    {7, "7,12 0,12 0,0|0,6.3 6,6.3"},                                                                          // F
    {9, "~8.6,9.2 8.6,12 0,12 0,0 9,0 9,5.6|9,5.6 5,5.6"},                                                     // G
    {8.5, "0,0 0,12|8.5,0 8.5,12|0,6.3 8.5,6.3"},                                                              // H
    {0, "0,0 0,12"},                                                                                           // I
    {6, "6,12 6,4|~6,4 6,0 0,0 0,3.2"},                                                                        // J
    {8, "0,0 0,12|8,12 0,4.3|3,7.2 8.2,0"},                                                                    // K
    {6.5, "0,12 0,0 6.5,0"},                                                                                   // L
    {10, "0,0 0,12 5,3 10,12 10,0"},                                                                           // M
    {9, "0,0 0,12 9,0 9,12"},                                                                                  // N
    {9.5, "o0,0 0,12 9.5,12 9.5,0"},                                                                           // O
    {8, "0,0 0,12 4.5,12|~4.5,12 8,12 8,5.4 4.5,5.4|4.5,5.4 0,5.4"},                                           // P
    {9.5, "o0,0 0,12 9.5,12 9.5,0|5.8,3 9.8,-1"},                                                              // Q
    {8, "0,0 0,12 4.5,12|~4.5,12 8,12 8,5.6 4.5,5.6|4.5,5.6 0,5.6|4.4,5.6 8.2,0"},                             // R
    {8, "~7.7,9.3 7.7,12 0.3,12 0.3,6.5 7.9,5.7 7.9,0 0,0 0,2.9"},                                             // S
    {8.5, "0,12 8.5,12|4.25,12 4.25,0"},                                                                       // T
    {8.5, "0,12 0,4|~0,4 0,0 8.5,0 8.5,4|8.5,4 8.5,12"},                                                       // U
    {9, "0,12 4.5,0 9,12"},                                                                                    // V
    {13, "0,12 3.2,0 6.5,12 9.8,0 13,12"},                                                                     // W
    {8.5, "0,0 8.5,12|0,12 8.5,0"},                                                                            // X
    {8.5, "0,12 4.25,5.6 8.5,12|4.25,5.6 4.25,0"},                                                             // Y
    {8, "0,12 8,12 0,0 8,0"},                                                                                  // Z
    {2.8, "2.8,13 0,13 0,-3 2.8,-3"},                                                                          // [
    {5, "0,13 5,-1.5"},                                                                           // backslash
    {2.8, "0,13 2.8,13 2.8,-3 0,-3"},                                                             // ]
    {6, "0,7.5 3,12 6,7.5"},                                                                      // ^
    {7, "0,-2.5 7,-2.5"},                                                                         // _
    {2, "0,12 2,9.8"},                                                                            // `
    {6.5, "~0.6,6.7 0.6,8.5 6.5,8.5 6.5,5|6.5,5 6.5,0|~6.5,4.9 0,4.9 0,0 6.5,0 6.5,3"},           // a
    {7, "0,0 0,12|o0,0 0,8.5 7,8.5 7,0"},                                                         // b
    {6.3, "~6.3,6.2 6.3,8.5 0,8.5 0,0 6.3,0 6.3,2.3"},                                            // c
    {7, "7,0 7,12|o0,0 0,8.5 7,8.5 7,0"},                                                         // d
    {7, "0,4.4 7,4.4|~7,4.4 7,8.5 0,8.5 0,0 6.8,0 6.8,2"},                                        // e
    {4.2, "~4.4,12 1.5,12.4 1.5,8.4|1.5,8.4 1.5,0|0,8.2 4.2,8.2"},                                // f
    {7, "o0,0 0,8.5 7,8.5 7,0|7,8.5 7,-0.5|~7,-0.5 7,-4 0.4,-4 0.4,-2"},                          // g
    {6.5, "0,0 0,12|~0,5 0,8.5 6.5,8.5 6.5,5|6.5,5 6.5,0"},                                       // h
    {0, "0,0 0,8.5|0,11.6 0,11.6"},                                                               // i
    {1.5, "1.5,8.5 1.5,-1|~1.5,-1 1.5,-4 -1,-4|1.5,11.6 1.5,11.6"},                               // j
    {6.5, "0,0 0,12|6.2,8.5 0,3|2.4,5.1 6.5,0"},                                                  // k
    {1.8, "0,12 0,2.2|~0,2.2 0,0 1.8,0"},                                                         // l
    {11, "0,0 0,8.5|~0,5 0,8.5 5.5,8.5 5.5,5|5.5,5 5.5,0|~5.5,5 5.5,8.5 11,8.5 11,5|11,5 11,0"},  // m
    {6.5, "0,0 0,8.5|~0,5 0,8.5 6.5,8.5 6.5,5|6.5,5 6.5,0"},                                      // n
    {7.2, "o0,0 0,8.5 7.2,8.5 7.2,0"},                                                            // o
    {7, "0,-4 0,8.5|o0,0 0,8.5 7,8.5 7,0"},                                                       // p
    {7, "7,-4 7,8.5|o0,0 0,8.5 7,8.5 7,0"},                                                       // q
    {4, "0,0 0,8.5|~0,5 0,8.6 4,8.4"},                                                            // r
    {6, "~5.7,6.6 5.7,8.5 0.3,8.5 0.3,4.6 6,4 6,0 0,0 0,2"},                                      // s
    {4.3, "1.6,11 1.6,2.5|~1.6,2.5 1.6,0 4.3,0|0,8.2 4.2,8.2"},                                   // t
    {6.5, "0,8.5 0,3.5|~0,3.5 0,0 6.5,0 6.5,3.5|6.5,8.5 6.5,0"},                                  // u
    {7, "0,8.5 3.5,0 7,8.5"},                                                                     // v
    {10, "0,8.5 2.5,0 5,8.5 7.5,0 10,8.5"},                                                       // w
    {6.5, "0,0 6.5,8.5|0,8.5 6.5,0"},                                                             // x
    {7, "0,8.5 3.6,0.2|7,8.5 2.6,-2.4|~2.6,-2.4 2,-4 0.4,-4"},                                    // y
    {6, "0,8.5 6,8.5 0,0 6,0"},                                                                   // z
    {3.4, "~3.4,13 1.4,13 1.4,5.6 0,5|~0,5 1.4,4.4 1.4,-3 3.4,-3"},                               // {
    {0, "0,13.5 0,-3.5"},                                                                         // |
    {3.4, "~0,13 2,13 2,5.6 3.4,5|~3.4,5 2,4.4 2,-3 0,-3"},                                       // }
    {7.4, "~0,4 1.2,7.6 3.7,5.2 6.2,2.8 7.4,6.4"},                                                // ~
    {3.6, "o0,8.4 0,12.2 3.6,12.2 3.6,8.4"},                                                      // degree sign
}};

constexpr double kCapital = 12;   // height of a capital, in grid units
constexpr double kSpacing = 2.9;  // space between two glyphs
constexpr double kStroke = 1.35;  // width of a stroke at weight 1
constexpr int kCurveSteps = 6;    // line segments per piece of a curve

PenPoint middle(PenPoint a, PenPoint b) {
  return {(a.x + b.x) / 2, (a.y + b.y) / 2};
}

void add_polyline(const std::vector<PenPoint>& points, std::vector<PenStroke>& out) {
  for (std::size_t i = 1; i < points.size(); ++i) out.push_back({points[i - 1], points[i]});
}

// The parabola from a to c whose end tangents meet in b.
void add_parabola(PenPoint a, PenPoint b, PenPoint c, std::vector<PenStroke>& out) {
  PenPoint before = a;
  for (int step = 1; step <= kCurveSteps; ++step) {
    const double t = static_cast<double>(step) / kCurveSteps, s = 1 - t;
    const PenPoint next{s * s * a.x + 2 * s * t * b.x + t * t * c.x, s * s * a.y + 2 * s * t * b.y + t * t * c.y};
    out.push_back({before, next});
    before = next;
  }
}

// A quadratic B-spline: parabolas between the midpoints of adjacent control points.
void add_curve(const std::vector<PenPoint>& guides, bool closed, std::vector<PenStroke>& out) {
  const std::size_t n = guides.size();
  if (closed) {
    for (std::size_t i = 0; i < n; ++i) {
      const PenPoint guide = guides[i];
      add_parabola(middle(guides[(i + n - 1) % n], guide), guide, middle(guide, guides[(i + 1) % n]), out);
    }
    return;
  }
  for (std::size_t i = 1; i + 1 < n; ++i) {
    const PenPoint from = i == 1 ? guides[0] : middle(guides[i - 1], guides[i]);
    const PenPoint to = i + 2 == n ? guides[n - 1] : middle(guides[i], guides[i + 1]);
    add_parabola(from, guides[i], to, out);
  }
}

std::vector<PenPoint> parse_points(const std::string& text) {
  std::istringstream stream(text);
  std::vector<PenPoint> points;
  char comma = 0;
  for (PenPoint point{}; stream >> point.x >> comma >> point.y;) points.push_back(point);
  return points;
}

struct Glyph {
  double width = 0;
  std::vector<PenStroke> segments;
};

Glyph parse(const GlyphSource& source) {
  Glyph glyph{source.width, {}};
  std::istringstream stream(source.strokes);
  for (std::string stroke; std::getline(stream, stroke, '|');) {
    const bool curve = stroke[0] == '~', closed = stroke[0] == 'o';
    const std::vector<PenPoint> points = parse_points(curve || closed ? stroke.substr(1) : stroke);
    if (curve || closed) {
      add_curve(points, closed, glyph.segments);
    } else {
      add_polyline(points, glyph.segments);
    }
  }
  return glyph;
}

const Glyph& glyph(std::size_t index) {
  static const auto glyphs = [] {
    std::array<Glyph, kGlyphs.size()> all;
    std::transform(kGlyphs.begin(), kGlyphs.end(), all.begin(), parse);
    return all;
  }();
  return glyphs[index];
}

// Indices of the glyphs of a text.
std::vector<std::size_t> glyphs_of(std::string_view text) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c & 0xc0) == 0x80) continue;  // a continuation byte of UTF-8
    if (text.substr(i, 2) == "\u00b0") {
      indices.push_back(kDegreeSign);
    } else {
      indices.push_back(static_cast<std::size_t>((c >= kFirst && c <= kLast ? c : '?') - kFirst));
    }
  }
  return indices;
}

// Draws a glyph with its origin at (x, y); one pixel is 1 / scale grid units.
void draw_glyph(Image& image, double x, double y, const Glyph& glyph, double scale, const TextStyle& style) {
  const double radius = std::max(kStroke * style.weight * scale, 1.0) / 2;
  const auto column = [&](double units) { return x + units * scale; };
  const auto row = [&](double units) { return y - units * scale; };
  const int left = std::max(static_cast<int>(column(-1) - radius - 1), 0);
  const int right = std::min(static_cast<int>(column(glyph.width) + radius + 1), image.width - 1);
  const int top = std::max(static_cast<int>(row(13.5) - radius - 1), 0);
  const int bottom = std::min(static_cast<int>(row(-4) + radius + 1), image.height - 1);
  for (int py = top; py <= bottom; ++py) {
    for (int px = left; px <= right; ++px) {
      const PenPoint centre{(px + 0.5 - x) / scale, (y - py - 0.5) / scale};
      double nearest = std::numeric_limits<double>::infinity();
      for (const PenStroke& segment : glyph.segments) nearest = std::min(nearest, distance(centre, segment));
      blend(image.at(px, py), style.color, std::clamp(radius - nearest * scale + 0.5, 0.0, 1.0));
    }
  }
}

}  // namespace

double text_width(std::string_view text, const TextStyle& style) {
  double units = 0;
  for (const std::size_t index : glyphs_of(text)) units += glyph(index).width + kSpacing;
  return std::max(units - kSpacing, 0.0) * style.size / kCapital;
}

void draw_text(Image& image, double x, double y, std::string_view text, const TextStyle& style) {
  const double width = text_width(text, style);
  if (style.align == Align::centre) x -= width / 2;
  if (style.align == Align::right) x -= width;
  const double scale = style.size / kCapital;
  for (const std::size_t index : glyphs_of(text)) {
    draw_glyph(image, x, y, glyph(index), scale, style);
    x += (glyph(index).width + kSpacing) * scale;
  }
}

}  // namespace isobar
