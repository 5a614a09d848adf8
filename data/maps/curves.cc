#include "data/maps/curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "data/maps/pen.h"
#include "data/maps/stroke_font.h"
#include "data/maps/ticks.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr int kWidth = 900, kHeight = 560, kLeft = 86, kRight = 30, kTop = 92, kBottom = 64, kMaxTicks = 8;
constexpr Rgb kGridLine{222, 222, 222};

// The range of all finite points' coordinates; a positive width even if they are equal or none.
NumberRange range_of(std::span<const Curve> curves, std::vector<double> Curve::*axis, bool from_zero) {
  NumberRange range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const Curve& curve : curves)
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      if (!std::isfinite(curve.x[i]) || !std::isfinite(curve.y[i])) continue;
      range = {std::min(range.low, (curve.*axis)[i]), std::max(range.high, (curve.*axis)[i])};
    }
  if (range.low > range.high) range = {0, 1};
  if (from_zero) range = {std::min(range.low, 0.0), std::max(range.high, 0.0)};
  if (range.high - range.low < 1e-9 * std::max(std::abs(range.low), std::abs(range.high)) + 1e-30)
    range = {range.low - 0.5, range.high + 0.5};
  return range;
}

// The plot area, and where values lie in it.
struct Plot {
  NumberRange x, y;

  double column(double value) const { return kLeft + (value - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight); }
  double row(double value) const {
    return kHeight - kBottom - (value - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  }
};

void draw_axes(Image& image, const Plot& plot, const CurveLabels& labels) {
  const double left = kLeft, right = kWidth - kRight, top = kTop, bottom = kHeight - kBottom;
  const Ticks columns = round_ticks(plot.x, kMaxTicks), rows = round_ticks(plot.y, kMaxTicks);
  for (const double value : columns.values) {
    const double x = plot.column(value);
    draw_line(image, std::array<PenPoint, 2>{{{x, top}, {x, bottom}}}, 1, kGridLine);
    draw_text(image, x, bottom + 20, number_text(value, columns.decimals),
              {.size = 9.5, .color = kInk, .align = Align::centre});
  }
  for (const double value : rows.values) {
    const double y = plot.row(value);
    draw_line(image, std::array<PenPoint, 2>{{{left, y}, {right, y}}}, 1, kGridLine);
    draw_text(image, left - 10, y + 4.5, number_text(value, rows.decimals),
              {.size = 9.5, .color = kInk, .align = Align::right});
  }
  draw_line(image, std::array<PenPoint, 5>{{{left, top}, {right, top}, {right, bottom}, {left, bottom}, {left, top}}},
            1.2, kFrame);
  draw_text(image, (left + right) / 2, bottom + 46, labels.x, {.size = 11, .color = kInk, .align = Align::centre});
  draw_text(image, left, top - 12, labels.y, {.size = 11, .color = kInk});
}

void draw_legend(Image& image, std::span<const Curve> curves) {
  constexpr double kDash = 26, kGap = 8, kSpace = 24;
  double x = kWidth - kRight;
  for (std::size_t i = curves.size(); i-- > 0;) {
    const TextStyle style{.size = 11, .color = kInk};
    x -= text_width(curves[i].name, style);
    draw_text(image, x, kTop - 12, curves[i].name, style);
    draw_line(image, std::array<PenPoint, 2>{{{x - kGap - kDash, kTop - 17.0}, {x - kGap, kTop - 17.0}}}, 2.4,
              curves[i].color);
    x -= kGap + kDash + kSpace;
  }
}

}  // namespace

Rgb curve_color(std::size_t number) {
  // Okabe and Ito's colours, which people without red or green can tell apart.
  static constexpr std::array<Rgb, 6> kColors{
      {{0, 114, 178}, {213, 94, 0}, {0, 158, 115}, {204, 121, 167}, {230, 159, 0}, {86, 180, 233}}};
  return kColors[number % kColors.size()];
}

Image draw_curves(const CurveLabels& labels, std::span<const Curve> curves) {
  for (const Curve& curve : curves)
    ISOBAR_CHECK(curve.x.size() == curve.y.size(), "the curve ", curve.name, " has ", curve.x.size(), " and ",
                 curve.y.size(), " coordinates");
  Image image(kWidth, kHeight);
  const Plot plot{range_of(curves, &Curve::x, false), range_of(curves, &Curve::y, labels.from_zero)};
  draw_text(image, kLeft, 36, labels.title, {.size = 16, .weight = 1.25, .color = kInk});
  draw_axes(image, plot, labels);
  for (const Curve& curve : curves) {
    std::vector<PenPoint> line;
    const auto end_line = [&] {
      const bool is_point = line.size() == 1;
      if (is_point) line.push_back(line.front());
      draw_line(image, line, is_point ? 6 : 2.4, curve.color);
      line.clear();
    };
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      if (std::isfinite(curve.x[i]) && std::isfinite(curve.y[i]))
        line.push_back({plot.column(curve.x[i]), plot.row(curve.y[i])});
      else
        end_line();
    }
    end_line();
  }
  draw_legend(image, curves);
  return image;
}

}  // namespace isobar
