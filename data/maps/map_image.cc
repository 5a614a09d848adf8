#include "data/maps/map_image.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "data/maps/colormap.h"
#include "data/maps/pen.h"
#include "data/maps/stroke_font.h"
#include "data/maps/ticks.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr Rgb kGraticule{0, 0, 0};
constexpr double kGraticuleShare = 0.22;
constexpr Rgb kMissing{160, 160, 160};
constexpr int kTicks = 8;  // max number on a colour bar

using ColorMap = Rgb (*)(double share);

struct Rectangle {
  int x, y, width, height;
};

// The colour map of a panel, and the range of its values.
struct Scale {
  ColorMap colors;
  NumberRange range;

  Rgb color(double value) const {
    if (!std::isfinite(value)) return kMissing;
    return colors((value - range.low) / (range.high - range.low));
  }
};

void check(const Field& field) {
  ISOBAR_CHECK(field.height > 0 && field.width > 0 &&
                   field.values.size() == static_cast<std::size_t>(field.height) * field.width,
               "a map of ", field.height, " x ", field.width, " cells got ", field.values.size(), " values");
}

std::optional<NumberRange> finite_range(const Field& field) {
  std::optional<NumberRange> range;
  for (const double value : field.values) {
    if (!std::isfinite(value)) continue;
    if (!range) range = NumberRange{value, value};
    range = NumberRange{std::min(range->low, value), std::max(range->high, value)};
  }
  return range;
}

// A range of positive width for the colours, even if a field is constant or has no finite value.
NumberRange color_range(std::optional<NumberRange> range) {
  const NumberRange known = range.value_or(NumberRange{0, 0});
  const double min_width = 1e-6 * std::max(std::abs(known.low), std::abs(known.high)) + 1e-30;
  if (known.high - known.low >= min_width) return known;
  return {known.low - 0.5, known.high + 0.5};
}

NumberRange error_range(const Field& error) {
  std::vector<double> magnitudes;
  for (const double value : error.values) {
    if (std::isfinite(value)) magnitudes.push_back(std::abs(value));
  }
  if (magnitudes.empty()) return {-1, 1};
  const auto most = magnitudes.begin() + static_cast<std::ptrdiff_t>(0.99 * static_cast<double>(magnitudes.size() - 1));
  std::nth_element(magnitudes.begin(), most, magnitudes.end());
  const double reach = *most > 0 ? *most : 1;
  return {-reach, reach};
}

// Over the values that are finite; NaN if none is.
double root_mean_square(const Field& field) {
  double sum = 0, count = 0;
  for (const double value : field.values) {
    if (!std::isfinite(value)) continue;
    sum += value * value;
    ++count;
  }
  return std::sqrt(sum / count);
}

void fill(Image& image, const Rectangle& area, Rgb color) {
  for (int y = area.y; y < area.y + area.height; ++y) {
    for (int x = area.x; x < area.x + area.width; ++x) image.at(x, y) = color;
  }
}

void draw_frame(Image& image, const Rectangle& inside) {
  const auto [x, y, width, height] = inside;
  fill(image, {x - 1, y - 1, width + 2, 1}, kFrame);
  fill(image, {x - 1, y + height, width + 2, 1}, kFrame);
  fill(image, {x - 1, y, 1, height}, kFrame);
  fill(image, {x + width, y, 1, height}, kFrame);
}

// The cells [first, end) of `cells` that pixel `pixel` of `pixels` shows: one or more.
std::pair<int, int> cells_of(int pixel, int pixels, int cells) {
  const auto boundary = [&](int p) { return static_cast<int>(static_cast<std::int64_t>(p) * cells / pixels); };
  const int first = boundary(pixel);
  return {first, std::max(boundary(pixel + 1), first + 1)};
}

double mean_of_cells(const Field& field, std::pair<int, int> rows, std::pair<int, int> columns) {
  double sum = 0;
  for (int row = rows.first; row < rows.second; ++row) {
    for (int column = columns.first; column < columns.second; ++column) {
      sum += field.values[static_cast<std::size_t>(row) * field.width + column];
    }
  }
  return sum / ((rows.second - rows.first) * (columns.second - columns.first));
}

void draw_field(Image& image, const Rectangle& area, const Field& field, const Scale& scale, bool upside_down) {
  for (int y = 0; y < area.height; ++y) {
    const auto rows = cells_of(upside_down ? area.height - 1 - y : y, area.height, field.height);
    for (int x = 0; x < area.width; ++x) {
      const double value = mean_of_cells(field, rows, cells_of(x, area.width, field.width));
      image.at(area.x + x, area.y + y) = scale.color(value);
    }
  }
  draw_frame(image, area);
}

void draw_color_bar(Image& image, const Rectangle& area, const Scale& scale) {
  const double span = scale.range.high - scale.range.low;
  for (int x = 0; x < area.width; ++x) {
    fill(image, {area.x + x, area.y, 1, area.height}, scale.colors((x + 0.5) / area.width));
  }
  draw_frame(image, area);
  const Ticks ticks = round_ticks(scale.range, kTicks);
  for (const double value : ticks.values) {
    const int x = area.x + static_cast<int>(std::lround((value - scale.range.low) / span * (area.width - 1)));
    fill(image, {x, area.y + area.height, 1, 5}, kFrame);
    draw_text(image, x + 0.5, area.y + area.height + 18, number_text(value, ticks.decimals),
              {.size = 9.5, .color = kInk, .align = Align::centre});
  }
}

// The position of a coordinate on an axis of cell centres, as a share of the axis; none if it is outside or the axis is
// not monotonic.
std::optional<double> place_on(std::span<const float> axis, double coordinate) {
  for (std::size_t i = 1; i < axis.size(); ++i) {
    const double a = axis[i - 1], b = axis[i];
    if (a == b || (b > a) != (axis.back() > axis.front())) return std::nullopt;
    const double t = (coordinate - a) / (b - a);
    if (t >= 0 && t <= 1) return (static_cast<double>(i) - 0.5 + t) / static_cast<double>(axis.size());
  }
  return std::nullopt;
}

struct GridLine {
  double share;  // of the axis
  std::string label;
};

// About five lines at round degrees.
std::vector<GridLine> grid_lines(std::span<const float> axis, std::string (*label)(double degrees)) {
  std::vector<GridLine> lines;
  if (axis.size() < 2) return lines;
  const auto [low, high] = std::minmax(axis.front(), axis.back());
  double step = 90;
  for (const double finer : {60, 30, 20, 15, 10, 5, 2, 1}) {
    if ((high - low) / finer <= 6.5) step = finer;
  }
  for (double i = std::ceil(low / step); i * step <= high; ++i) {
    if (const std::optional<double> share = place_on(axis, i * step)) lines.push_back({*share, label(i * step)});
  }
  return lines;
}

std::string latitude_label(double degrees) {
  return number_text(std::abs(degrees), 0) + "\u00b0" + (degrees > 0 ? "N" : degrees < 0 ? "S" : "");
}

std::string longitude_label(double degrees) {
  const double east = std::remainder(degrees, 360);  // -180 .. 180
  const bool neither = east == 0 || std::abs(east) == 180;
  return number_text(std::abs(east), 0) + "\u00b0" + (neither ? "" : east > 0 ? "E" : "W");
}

void draw_graticule(Image& image, const Rectangle& area, const MapLabels& labels, bool with_latitudes) {
  const TextStyle style{.size = 8.5, .color = kFrame, .align = Align::centre};
  for (const auto& [share, label] : grid_lines(labels.lon, longitude_label)) {
    const int x = area.x + std::min(static_cast<int>(share * area.width), area.width - 1);
    for (int y = area.y; y < area.y + area.height; ++y) blend(image.at(x, y), kGraticule, kGraticuleShare);
    draw_text(image, x + 0.5, area.y + area.height + 14, label, style);
  }
  const bool upwards = !labels.lat.empty() && labels.lat.front() < labels.lat.back();
  for (const auto& [share, label] : grid_lines(labels.lat, latitude_label)) {
    const double from_top = upwards ? 1 - share : share;
    const int y = area.y + std::min(static_cast<int>(from_top * area.height), area.height - 1);
    for (int x = area.x; x < area.x + area.width; ++x) blend(image.at(x, y), kGraticule, kGraticuleShare);
    TextStyle right = style;
    right.align = Align::right;
    if (with_latitudes) draw_text(image, area.x - 6, y + 4.5, label, right);
  }
}

// "t2m (K),  +6 h,  2013-01-01 06:00,  iteration 800".
std::string title_of(const MapLabels& labels) {
  std::string title = labels.variable + (labels.unit.empty() ? "" : " (" + labels.unit + ")");
  const std::string iteration = labels.iteration ? "iteration " + std::to_string(*labels.iteration) : "";
  for (const std::string& part : {labels.lead_time, labels.valid_time, iteration})
    if (!part.empty()) title += ",  " + part;
  return title;
}

}  // namespace

Image target_and_prediction(const Field& target, const Field& prediction) {
  check(target);
  check(prediction);
  constexpr int kPanel = 560, kMargin = 26, kTop = 84, kTallest = 400;
  Image image(1200, 600);
  const Scale scale{turbo, color_range(finite_range(target))};
  const int height = std::clamp(kPanel * target.height / target.width, 60, kTallest);
  const int top = kTop + (kTallest - height) / 2;
  const TextStyle title{.size = 18, .weight = 1.2, .color = kInk, .align = Align::centre};
  const auto draw_panel = [&](int x, const char* name, const Field& field) {
    draw_text(image, x + kPanel / 2.0, top - 18, name, title);
    draw_field(image, {x, top, kPanel, height}, field, scale, false);
  };
  draw_panel(kMargin, "ERA5 target", target);
  draw_panel(image.width - kMargin - kPanel, "ViT prediction", prediction);
  draw_color_bar(image, {300, top + height + 34, 600, 16}, scale);
  return image;
}

Image target_forecast_error(const Field& target, const Field& forecast, const MapLabels& labels) {
  check(target);
  check(forecast);
  ISOBAR_CHECK(target.height == forecast.height && target.width == forecast.width, "a map of ", labels.variable,
               " compares a target of ", target.height, " x ", target.width, " with a forecast of ", forecast.height,
               " x ", forecast.width);
  ISOBAR_CHECK(labels.lat.empty() || labels.lat.size() == static_cast<std::size_t>(target.height), "a map of ",
               target.height, " rows got ", labels.lat.size(), " latitudes");
  ISOBAR_CHECK(labels.lon.empty() || labels.lon.size() == static_cast<std::size_t>(target.width), "a map of ",
               target.width, " columns got ", labels.lon.size(), " longitudes");

  std::vector<float> differences(target.values.size());
  std::transform(forecast.values.begin(), forecast.values.end(), target.values.begin(), differences.begin(),
                 [](float f, float t) { return f - t; });
  const Field error{target.height, target.width, differences};

  constexpr int kPanel = 480, kLeft = 56, kGap = 34, kRight = 30, kTop = 92;
  const int height = std::clamp(kPanel * target.height / target.width, 120, kPanel);
  const int bar_top = kTop + height + 30;
  Image image(kLeft + 3 * kPanel + 2 * kGap + kRight, bar_top + 46);

  draw_text(image, kLeft, 34, title_of(labels), {.size = 17, .weight = 1.25, .color = kInk});

  const bool upside_down = !labels.lat.empty() && labels.lat.front() < labels.lat.back();
  const auto draw_panel = [&](int position, const char* name, const Field& field, const Scale& scale,
                              const std::string& remark) {
    const int x = kLeft + position * (kPanel + kGap);
    draw_text(image, x, kTop - 14, name, {.size = 13, .color = kInk});
    draw_field(image, {x, kTop, kPanel, height}, field, scale, upside_down);
    draw_graticule(image, {x, kTop, kPanel, height}, labels, position == 0);
    draw_color_bar(image, {x, bar_top, kPanel, 12}, scale);
    const NumberRange extremes = finite_range(field).value_or(NumberRange{NAN, NAN});
    const int decimals = decimals_for_step((scale.range.high - scale.range.low) / 100);
    draw_text(image, x + kPanel, kTop - 14,
              "min " + number_text(extremes.low, decimals) + "   max " + number_text(extremes.high, decimals) + remark,
              {.size = 10, .color = kFrame, .align = Align::right});
  };
  const Scale shared{turbo, color_range(finite_range(target))};
  const Scale diverging{blue_white_red, error_range(error)};
  const double rms = root_mean_square(error);
  const int decimals = decimals_for_step((diverging.range.high - diverging.range.low) / 100);
  draw_panel(0, "target", target, shared, "");
  draw_panel(1, "forecast", forecast, shared, "");
  draw_panel(2, "error: forecast - target", error, diverging, "   rms " + number_text(rms, decimals));
  return image;
}

}  // namespace isobar
