// Curves: lines go through their points, gaps are not bridged, odd input is drawn.
#include "data/maps/curves.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "data/maps/pen.h"
#include "data/maps/stroke_font.h"
#include "data/maps/ticks.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

std::vector<int> rows_of_color(const Image& image, int x, Rgb color) {
  std::vector<int> rows;
  for (int y = 92; y < image.height; ++y)  // below the legend
    if (image.at(x, y) == color) rows.push_back(y);
  return rows;
}

}  // namespace

TEST_CASE("ticks: labels have the digits that their step needs") {
  const Ticks halves = round_ticks({.low = 0, .high = 10}, 4);
  CHECK(halves.values == std::vector<double>{0, 2.5, 5, 7.5, 10});
  CHECK(halves.decimals == 1);
  CHECK(round_ticks({.low = 0, .high = 100}, 4).decimals == 0);  // by 25
  CHECK(round_ticks({.low = 0, .high = 1}, 4).decimals == 2);    // by .25
  CHECK(round_ticks({.low = 0, .high = 10}, 5).decimals == 0);   // by 2
  CHECK(round_ticks({.low = 0, .high = .5}, 5).decimals == 1);   // by .1
}

TEST_CASE("curves: a line goes through its points, and a gap is not bridged") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Rgb color = curve_color(0);
  const std::vector<Curve> curves{{"a", {0, 6, 12, 18, 24}, {0, 5, nan, 10, 10}, color}};
  const Image image = draw_curves({.title = "t", .x = "x", .y = "y", .from_zero = true}, curves);
  CHECK(image.width == 900);
  // The plot is from column 86 to 870 and from row 496 (0) to 92 (10).
  const auto column = [](double x) { return static_cast<int>(86 + x / 24 * 784); };
  const std::vector<int> at_3 = rows_of_color(image, column(3), color);
  REQUIRE_FALSE(at_3.empty());
  CHECK(std::abs(at_3.front() - (496 - 404 / 4)) <= 2);  // 2.5
  CHECK(rows_of_color(image, column(12), color).empty());
  CHECK_FALSE(rows_of_color(image, column(21), color).empty());
}

TEST_CASE("curves: nothing, one point and equal values are drawn, unequal counts are refused") {
  CHECK_NOTHROW(draw_curves({}, {}));
  CHECK_NOTHROW(draw_curves({}, std::vector<Curve>{{"a", {1}, {std::nan("")}, {}}}));
  const Image image = draw_curves({}, std::vector<Curve>{{"a", {1}, {7}, curve_color(1)}});
  CHECK_FALSE(rows_of_color(image, 478, curve_color(1)).empty());  // in the middle
  CHECK_THROWS_WITH(draw_curves({}, std::vector<Curve>{{"a", {1, 2}, {7}, {}}}), "the curve a has 2 and 1 coordinates");
}

TEST_CASE("ticks: numbers below zero, a range between round numbers, and zero without a sign") {
  CHECK(round_ticks({.low = -30, .high = 10}, 8).values == std::vector<double>{-30, -25, -20, -15, -10, -5, 0, 5, 10});
  CHECK(round_ticks({.low = 3, .high = 21}, 8).values == std::vector<double>{5, 7.5, 10, 12.5, 15, 17.5, 20});
  CHECK(round_ticks({.low = 3, .high = 21}, 8).decimals == 1);
  const Ticks small = round_ticks({.low = 0, .high = 3e-4}, 3);
  CHECK(small.decimals == 4);
  CHECK(small.values.size() == 4);
  CHECK(number_text(-0.0, 1) == "0.0");
  CHECK(number_text(-12.25, 1) == "-12.2");
  CHECK(decimals_for_step(1) == 0);
  CHECK(decimals_for_step(0.5) == 1);
  CHECK(decimals_for_step(0.01) == 2);
  CHECK(decimals_for_step(100) == 0);
  CHECK(decimals_for_step(1e-12) == 9);
}

TEST_CASE("curves: colours begin again after six, and the y axis begins at zero if it should, from either side") {
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(curve_color(i) == curve_color(i + 6));
    for (std::size_t j = 0; j < i; ++j) CHECK_FALSE(curve_color(i) == curve_color(j));
  }
  const Rgb color = curve_color(2);
  const auto row_of = [&](std::vector<double> y, bool from_zero) {
    const Image image = draw_curves({.title = "", .x = "", .y = "", .from_zero = from_zero},
                                    std::vector<Curve>{{"", {0, 1}, std::move(y), color}});
    const std::vector<int> rows = rows_of_color(image, 478, color);  // in the middle
    return (rows.front() + rows.back()) / 2;
  };
  // The plot is from row 496 (low) to 92 (high).
  CHECK(std::abs(row_of({4, 8}, false) - 294) <= 1);
  CHECK(std::abs(row_of({4, 8}, true) - (496 - 404 * 6 / 8)) <= 1);
  CHECK(std::abs(row_of({-4, -8}, true) - (92 + 404 * 6 / 8)) <= 1);
}

TEST_CASE("curves: title, axes and legend say what is drawn, each in its place") {
  const std::vector<Curve> curves{{"forecast", {0, 6}, {0, 4}, curve_color(0)},
                                  {"persistence", {0, 6}, {4, 2}, curve_color(1)}};
  const Image image = draw_curves({.title = "RMSE of t2m", .x = "hours", .y = "K", .from_zero = true}, curves);
  // Whether the ink of a text is there.
  const auto shows = [&](const std::string& text, double x, double y, const TextStyle& style) {
    Image expected(image.width, image.height);
    draw_text(expected, x, y, text, style);
    for (std::size_t i = 0; i < expected.pixels.size(); ++i)
      if (!(expected.pixels[i] == Rgb{255, 255, 255}) && !(expected.pixels[i] == image.pixels[i])) return false;
    return true;
  };
  const TextStyle middle{.size = 11, .color = kInk, .align = Align::centre}, name{.size = 11, .color = kInk};
  CHECK(shows("RMSE of t2m", 86, 36, {.size = 16, .weight = 1.25, .color = kInk}));
  CHECK_FALSE(shows("RMSE of t2n", 86, 36, {.size = 16, .weight = 1.25, .color = kInk}));
  CHECK(shows("hours", 478, 542, middle));
  CHECK(shows("K", 86, 80, name));
  const TextStyle tick{.size = 9.5, .color = kInk, .align = Align::centre};
  CHECK(shows("0", 86, 516, tick));
  CHECK(shows("6", 870, 516, tick));
  CHECK(shows("4.0", 76, 96.5, {.size = 9.5, .color = kInk, .align = Align::right}));
  // The legend ends at the right side of the plot; a line of 26 pixels and a gap of 8 stand before each name.
  double x = 870;
  for (const std::size_t i : {1, 0}) {
    x -= text_width(curves[i].name, name);
    CHECK(shows(curves[i].name, x, 80, name));
    std::vector<int> columns;
    for (int column = 0; column < image.width; ++column)
      if (image.at(column, 75) == curves[i].color) columns.push_back(column);
    REQUIRE_FALSE(columns.empty());
    CHECK(std::abs(columns.front() - (x - 34)) <= 3);
    CHECK(std::abs(columns.back() - (x - 8)) <= 3);
    x -= 26 + 8 + 24;
  }
}
