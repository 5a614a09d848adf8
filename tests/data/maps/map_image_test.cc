// Pictures: colours at known values, text in its place, cells in their place, colour scales, odd fields.
#include "data/maps/map_image.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "data/maps/colormap.h"
#include "data/maps/pen.h"
#include "data/maps/stroke_font.h"
#include "engine/files/checksum.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;

constexpr Rgb kWhite{255, 255, 255};
constexpr Rgb kGrey{160, 160, 160};

bool near(Rgb a, Rgb b) {
  return std::abs(a.r - b.r) <= 1 && std::abs(a.g - b.g) <= 1 && std::abs(a.b - b.b) <= 1;
}

struct Box {
  int left = std::numeric_limits<int>::max(), right = -1, top = std::numeric_limits<int>::max(), bottom = -1;
};

// The smallest box around all pixels of `area` for which `matches` holds.
template <class Matches>
Box box_of(const Image& image, const Matches& matches, const Box& area) {
  Box box;
  for (int y = area.top; y <= area.bottom; ++y) {
    for (int x = area.left; x <= area.right; ++x) {
      if (!matches(image.at(x, y))) continue;
      box = {std::min(box.left, x), std::max(box.right, x), std::min(box.top, y), std::max(box.bottom, y)};
    }
  }
  return box;
}

template <class Matches>
Box box_of(const Image& image, const Matches& matches) {
  return box_of(image, matches, {0, image.width - 1, 0, image.height - 1});
}

Box ink_of(const std::string& text, double x, double y, const TextStyle& style) {
  Image image(200, 60);
  draw_text(image, x, y, text, style);
  return box_of(image, [](Rgb pixel) { return !(pixel == kWhite); });
}

TEST_CASE("colour maps have their published colours", "[map_image]") {
  CHECK(turbo(0) == Rgb{48, 18, 59});
  CHECK(turbo(1) == Rgb{122, 4, 3});
  CHECK(near(turbo(128 / 255.0), {164, 252, 60}));
  CHECK(near(turbo(64 / 255.0), {40, 187, 236}));
  CHECK(turbo(-3) == turbo(0));
  CHECK(turbo(7) == turbo(1));
  CHECK(blue_white_red(0) == Rgb{5, 48, 97});
  CHECK(blue_white_red(0.5) == Rgb{247, 247, 247});
  CHECK(blue_white_red(1) == Rgb{103, 0, 31});
}

TEST_CASE("text stands where it is put", "[map_image]") {
  const TextStyle style{.size = 20};
  const Box h = ink_of("H", 50, 40, style);
  CHECK(std::abs(h.left - 50) <= 2);
  CHECK(std::abs(h.right - (50 + text_width("H", style))) <= 2);
  CHECK(std::abs(h.top - 20) <= 2);
  CHECK(std::abs(h.bottom - 40) <= 2);
  CHECK(ink_of("p", 50, 40, style).bottom > 43);  // descends
  CHECK(ink_of("-", 50, 40, style).top > 25);

  const double width = text_width("forecast", style);
  const Box right = ink_of("forecast", 150, 40, {.size = 20, .align = Align::right});
  CHECK(std::abs(right.right - 150) <= 2);
  CHECK(std::abs(right.left - (150 - width)) <= 2);
  const Box centre = ink_of("forecast", 100, 40, {.size = 20, .align = Align::centre});
  CHECK(std::abs(centre.left + centre.right - 200) <= 3);
  CHECK(text_width("", style) == 0);
  CHECK(text_width("\u00b0", style) < text_width("C\u00b0", style));
}

TEST_CASE("every letter has ink, and none is like another", "[map_image]") {
  std::vector<std::vector<Rgb>> pictures;
  for (char letter = '!'; letter <= '~'; ++letter) {
    Image image(60, 60);
    draw_text(image, 10, 40, std::string(1, letter), {.size = 24});
    INFO(letter);
    CHECK(std::count(image.pixels.begin(), image.pixels.end(), kWhite) < 60 * 60 - 4);
    CHECK(std::find(pictures.begin(), pictures.end(), image.pixels) == pictures.end());
    pictures.push_back(image.pixels);
  }
  const auto picture = [](const char* text) {
    Image image(60, 60);
    draw_text(image, 10, 40, text, {.size = 24});
    return image.pixels;
  };
  CHECK(picture("\u00fc") == picture("?"));
  CHECK(picture("\u00b0") != picture("?"));
  Image small(3, 3);
  draw_text(small, -40, 50, "outside", {.size = 30});
  draw_text(small, 2, 2, "outside", {.size = 30});
}

// A number that stands for a picture's every pixel. Other processors may round a pixel otherwise.
std::uint64_t fingerprint(const Image& image) {
  return xxh64(std::as_bytes(std::span(image.pixels)));
}

// What these pictures look like was looked at: a change of any pixel must be meant. The number is in the failure.
TEST_CASE("pictures stay what they are to the last pixel", "[map_image]") {
#ifdef __x86_64__
  Image text(1010, 300);
  std::string printable;
  for (char letter = ' '; letter <= '~'; ++letter) printable += letter;
  draw_text(text, 5.3, 40.6, printable + "\u00b0", {.size = 9});
  draw_text(text, 500, 90, printable.substr(0, 48), {.size = 20, .weight = 1.6, .align = Align::centre});
  draw_text(text, 1000, 140, printable.substr(48), {.size = 20.5, .color = {9, 120, 200}, .align = Align::right});
  draw_text(text, -20, 200, "cut at both ends of the picture, and below", {.size = 50});
  draw_text(text, 300, 305, "gjpqy", {.size = 30});
  CHECK(fingerprint(text) == 10213678604561052955u);

  const int height = 18, width = 36;
  std::vector<float> target, forecast, lat, lon;
  for (int i = 0; i < height * width; ++i) {
    target.push_back(static_cast<float>(270 + 30 * std::sin(0.37 * (i / width)) * std::cos(0.21 * (i % width))));
    forecast.push_back(target.back() + static_cast<float>(2 * std::sin(0.05 * i)));
  }
  forecast[100] = std::numeric_limits<float>::infinity();
  for (int i = 0; i < height; ++i) lat.push_back(85.0f - 10.0f * static_cast<float>(i));
  for (int i = 0; i < width; ++i) lon.push_back(-175.0f + 10.0f * static_cast<float>(i));
  const Field a{height, width, target}, b{height, width, forecast};
  CHECK(fingerprint(target_and_prediction(a, b)) == 11379040099963625925u);
  CHECK(fingerprint(target_forecast_error(
            a, b, {.variable = "t2m", .unit = "K", .lead_time = "+6 h", .lat = lat, .lon = lon})) ==
        10821109603646754373u);
  // A region, upside down, of small numbers.
  forecast[100] = 270;
  for (float& value : target) value = (value - 270) * 1e-4f;
  for (float& value : forecast) value = (value - 270) * 1e-4f;
  for (int i = 0; i < height; ++i) lat[static_cast<std::size_t>(i)] = 40.0f + 0.25f * static_cast<float>(i);
  for (int i = 0; i < width; ++i) lon[static_cast<std::size_t>(i)] = 3.0f + 0.25f * static_cast<float>(i);
  CHECK(fingerprint(target_forecast_error(a, b, {.variable = "q", .lat = lat, .lon = lon})) == 10782511394240889588u);
#else
  testing::note_skip();
#endif
}

std::vector<float> ramp(int height, int width) {
  std::vector<float> values(static_cast<std::size_t>(height) * width);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return values;
}

TEST_CASE("the tutorial's picture has two panels of one scale", "[map_image]") {
  const std::vector<float> target = ramp(18, 36);
  std::vector<float> prediction(target.size(), 0.0f);
  prediction.back() = 1e6f;
  const Image image = target_and_prediction({18, 36, target}, {18, 36, prediction});
  CHECK(image.width == 1200);
  CHECK(image.height == 600);
  // The prediction is at the target's minimum everywhere but in its last cell, which lies beyond the target's maximum.
  CHECK(near(image.at(900, 280), turbo(0)));
  const Box beyond = box_of(image, [](Rgb pixel) { return pixel == turbo(1); });
  CHECK(beyond.right == 1173);
  CHECK(image.at(beyond.right, 420) == turbo(1));
  // The target's first and last cells, in its panel's corners.
  CHECK(near(image.at(28, 146), turbo(0)));
  CHECK(near(image.at(584, 420), turbo(1)));
}

TEST_CASE("a map shows each cell in its place", "[map_image]") {
  const int height = 6, width = 12;
  std::vector<float> target(static_cast<std::size_t>(height) * width, 1.0f);
  target[0] = 0.0f;
  std::vector<float> forecast = target;
  forecast[1 * width + 2] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> north_first{50, 40, 30, 20, 10, 0};
  const std::vector<float> south_first{0, 10, 20, 30, 40, 50};
  const int cell = 480 / width;
  for (const bool flipped : {false, true}) {
    const Image image = target_forecast_error(
        {height, width, target}, {height, width, forecast},
        {.variable = "t2m", .unit = "K", .lead_time = "+6 h", .lat = flipped ? south_first : north_first, .lon = {}});
    const Box panels{56 + 480 + 34, 56 + 3 * 480 + 2 * 34 - 1, 92, 92 + 240 - 1};  // forecast and error
    const Box grey = box_of(
        image, [](Rgb pixel) { return pixel == kGrey; }, panels);
    // Columns: the cell in the forecast's panel, and the same in the error's.
    CHECK(grey.left == 56 + 480 + 34 + 2 * cell);
    CHECK(grey.right == 56 + 2 * (480 + 34) + 3 * cell - 1);
    CHECK(grey.top == 92 + (flipped ? 4 : 1) * cell);
    CHECK(grey.bottom == 92 + (flipped ? 5 : 2) * cell - 1);
  }
}

TEST_CASE("the error's colours are symmetric about zero", "[map_image]") {
  const int height = 10, width = 20;
  const std::vector<float> target(static_cast<std::size_t>(height) * width, 5.0f);
  std::vector<float> forecast = target;
  for (std::size_t i = 0; i < 100; ++i) forecast[i] = 7.0f;  // the upper half is too warm
  const Image image = target_forecast_error({height, width, target}, {height, width, forecast}, {});
  const int x = 56 + 2 * (480 + 34) + 240;
  CHECK(image.at(x, 92 + 30) == blue_white_red(1));
  CHECK(image.at(x, 92 + 200) == blue_white_red(0.5));
  for (float& value : forecast) value = 10.0f - value;
  const Image colder = target_forecast_error({height, width, target}, {height, width, forecast}, {});
  CHECK(colder.at(x, 92 + 30) == blue_white_red(0));
}

TEST_CASE("maps of odd fields are drawn, wrong ones refused", "[map_image]") {
  for (const auto& [height, width] : {std::pair(1, 1), std::pair(1, 700), std::pair(700, 1), std::pair(13, 7)}) {
    const std::vector<float> values = ramp(height, width);
    const std::vector<float> nan(values.size(), NAN);
    CHECK_NOTHROW(target_and_prediction({height, width, values}, {height, width, values}));
    CHECK_NOTHROW(target_forecast_error({height, width, nan}, {height, width, values}, {.variable = "z500"}));
  }
  const std::vector<float> six = ramp(2, 3);
  CHECK_THROWS_WITH(target_and_prediction({2, 4, six}, {2, 3, six}), "a map of 2 x 4 cells got 6 values");
  CHECK_THROWS_WITH(target_and_prediction({2, 3, six}, {0, 3, {}}), "a map of 0 x 3 cells got 0 values");
  CHECK_THROWS_WITH(target_forecast_error({2, 3, six}, {3, 2, six}, {.variable = "sp"}),
                    "a map of sp compares a target of 2 x 3 with a forecast of 3 x 2");
  const std::vector<float> lat{1, 2, 3}, lon{1, 2};
  CHECK_THROWS_WITH(target_forecast_error({2, 3, six}, {2, 3, six}, {.lat = lat}), "a map of 2 rows got 3 latitudes");
  CHECK_THROWS_WITH(target_forecast_error({2, 3, six}, {2, 3, six}, {.lon = lon}),
                    "a map of 3 columns got 2 longitudes");
  CHECK_THROWS_WITH(Image(0, 3), "an image of 0 x 3 pixels");
  CHECK_THROWS_WITH(Image(3, -1), "an image of 3 x -1 pixels");
}

TEST_CASE("the title of a map says what is known, and no more", "[map_image]") {
  const std::vector<float> values(8, 1.F);
  const Field field{2, 4, values};
  const auto titled = [&](const MapLabels& labels) { return target_forecast_error(field, field, labels).pixels; };
  CHECK(
      titled(
          {.variable = "t2m", .unit = "K", .lead_time = "+6 h", .valid_time = "2013-01-01 06:00", .iteration = 800}) ==
      titled({.variable = "t2m (K),  +6 h,  2013-01-01 06:00,  iteration 800"}));
  CHECK(titled({.variable = "t2m", .iteration = 0}) == titled({.variable = "t2m,  iteration 0"}));
  CHECK(titled({.variable = "t2m", .valid_time = "2013"}) == titled({.variable = "t2m,  2013"}));
  CHECK(titled({.variable = "t2m,  2013"}) != titled({.variable = "t2m,  2014"}));
}

TEST_CASE("panels tell their extremes, and the error's mean square, over the points that are there", "[map_image]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> target{1, 2, 5, nan}, forecast{4, 5, 2, 7};
  const Image image = target_forecast_error({1, 4, target}, {1, 4, forecast}, {});
  const auto has = [&](int panel, const std::string& text) {
    const int right = 56 + panel * (480 + 34) + 480;
    Image expected(image.width, image.height);
    draw_text(expected, right, 92 - 14, text, {.size = 10, .color = kFrame, .align = Align::right});
    for (int y = 92 - 14 - 12; y < 92 - 14 + 4; ++y)
      for (int x = right - 200; x < right; ++x)
        if (!(image.at(x, y) == expected.at(x, y))) return false;
    return true;
  };
  CHECK(has(0, "min 1.00   max 5.00"));
  CHECK(has(1, "min 2.00   max 7.00"));
  CHECK(has(2, "min -3.00   max 3.00   rms 3.00"));
  CHECK_FALSE(has(2, "min -3.00   max 3.00   rms 3.01"));
}

TEST_CASE("longitudes say whether they are east or west", "[map_image]") {
  const std::vector<float> values(8, 0.0f), lat{45, -45}, east{45, 75, 105, 135}, west{-135, -105, -75, -45};
  const std::vector<float> turned{225, 255, 285, 315};  // west once more
  const auto map = [&](const std::vector<float>& lon) {
    return target_forecast_error({2, 4, values}, {2, 4, values}, {.lat = lat, .lon = lon}).pixels;
  };
  const bool differ = map(east) != map(west), same = map(west) == map(turned);
  CHECK(differ);
  CHECK(same);
  const bool neither = map({-180, -150, -120, -90}) == map({180, 210, 240, 270});  // of 180 degrees
  CHECK(neither);
}

TEST_CASE("a graticule is drawn where the coordinates are known", "[map_image]") {
  const int height = 19, width = 36;
  const std::vector<float> values = ramp(height, width);
  std::vector<float> lat, lon;
  for (int i = 0; i < height; ++i) lat.push_back(90.0f - 10.0f * static_cast<float>(i));
  for (int i = 0; i < width; ++i) lon.push_back(10.0f * static_cast<float>(i));
  const Field field{height, width, values};
  const Image with = target_forecast_error(field, field, {.lat = lat, .lon = lon});
  const Image without = target_forecast_error(field, field, {});
  const int panel_height = 480 * height / width;
  // The equator runs through the middle of the map, 180 degrees through its column's centre.
  for (const int x : {60, 300, 530}) {
    CHECK(!(with.at(x, 92 + panel_height / 2) == without.at(x, 92 + panel_height / 2)));
  }
  const int date_line = 56 + static_cast<int>(480 * 18.5 / 36);
  CHECK(!(with.at(date_line, 92 + 10) == without.at(date_line, 92 + 10)));
  CHECK(with.at(date_line + 20, 92 + 10) == without.at(date_line + 20, 92 + 10));
  std::vector<float> jumbled = lon;
  std::swap(jumbled[3], jumbled[9]);
  const Image some = target_forecast_error(field, field, {.lat = lat, .lon = jumbled});
  CHECK(some.at(date_line, 92 + 10) == without.at(date_line, 92 + 10));  // beyond the jumble no place is known
}

}  // namespace
}  // namespace isobar
