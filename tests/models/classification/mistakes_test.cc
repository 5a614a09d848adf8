// The picture of what a classifier reads wrongly: which images it shows, where, and what it says of them.
#include "models/classification/mistakes.h"

#include <algorithm>
#include <string>

#include "data/maps/stroke_font.h"
#include "kernels/cross_entropy.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

// The picture's measures in pixels: tiles of 84 in rows of eight, a caption of 22 below each, 12 between, a title of
// 32.
constexpr int kTile = 84, kAcross = kTile + 12, kDown = kTile + 22 + 12, kLeft = 12, kTop = 32;
constexpr int kColumns = 8, kMostTiles = 32;

int left_of(int tile) {
  return kLeft + tile % kColumns * kAcross;
}
int top_of(int tile) {
  return kTop + tile / kColumns * kDown;
}

std::uint8_t grey_at(const Image& image, int x, int y) {
  const Rgb pixel = image.at(x, y);
  CHECK(pixel.r == pixel.g);
  CHECK(pixel.g == pixel.b);
  return pixel.r;
}

// How many tiles are black in their middle.
int count_black(const Image& image) {
  int count = 0;
  for (int tile = 0; tile < kMostTiles; ++tile)
    count += image.at(left_of(tile) + kTile / 2, top_of(tile) + kTile / 2) == Rgb{0, 0, 0};
  return count;
}

// Whether a rectangle looks as in a white picture with this text alone.
bool shows_text(const Image& image, const std::string& text, int x, int y, Align align, int top, int bottom) {
  Image expected(image.width, image.height);
  draw_text(expected, x, y, text, {.size = 11, .align = align});
  const int left = align == Align::left ? 0 : x - kTile / 2, right = align == Align::left ? image.width : x + kTile / 2;
  int dark = 0;
  for (int row = top; row < bottom; ++row)
    for (int column = left; column < right; ++column) {
      if (image.at(column, row) != expected.at(column, row)) return false;
      dark += expected.at(column, row).r < 128;
    }
  return dark > 0;
}

bool has_title(const Image& image, const std::string& numbers) {
  return shows_text(image, numbers + " read wrongly; label > what it was taken for", kLeft, 22, Align::left, 0, kTop);
}
bool has_caption(const Image& image, int tile, const std::string& text) {
  const int bottom_of_tile = top_of(tile) + kTile;
  return shows_text(image, text, left_of(tile) + kTile / 2, bottom_of_tile + 16, Align::centre, bottom_of_tile,
                    bottom_of_tile + 22);
}

}  // namespace

TEST_CASE("the picture of mistakes shows the images that are read wrongly, dark where a pixel is large") {
  // Three images of 2 x 3 points; the middle one is right.
  const std::vector<float> images{0, 51, 102, 153, 204, 255, 7, 7, 7, 7, 7, 7, 255, 204, 153, 102, 51, 0};
  const Picture picture = draw_mistakes(images, 2, 3, {4, 5, 6}, {9, 5, 0});
  const Image& image = picture.image;
  for (int row = 0; row < 2; ++row)
    for (int column = 0; column < 3; ++column) {
      const int x = kTile * (2 * column + 1) / 6, y = kTile * (2 * row + 1) / 4, value = 51 * (3 * row + column);
      INFO("row " << row << ", column " << column);
      CHECK(grey_at(image, left_of(0) + x, top_of(0) + y) == 255 - value);
      CHECK(grey_at(image, left_of(1) + x, top_of(1) + y) == value);
      CHECK(grey_at(image, left_of(2) + x, top_of(2) + y) == 255);  // no third
    }
  CHECK(has_caption(image, 0, "4 > 9"));
  CHECK(has_caption(image, 1, "6 > 0"));
  CHECK(has_title(image, "2 of 3"));
  CHECK(picture.tag == "Visualization, read wrongly");
  CHECK(picture.file == "wrong");
  CHECK(picture.board.pixels == image.pixels);
}

TEST_CASE("the picture of mistakes has room for thirty-two, and counts them all") {
  for (const int wrong : {0, 1, 9, 32, 40}) {
    const auto count = static_cast<std::size_t>(wrong);
    const std::vector<float> black(count * 4 + 4, 255.f);
    std::vector<std::int32_t> labels(count + 1, 1), predictions(count + 1, 2);
    labels[0] = predictions[0] = 3;
    const Picture picture = draw_mistakes(black, 2, 2, labels, predictions);
    CHECK(count_black(picture.image) == std::min(wrong, kMostTiles));
    CHECK(has_title(picture.image, std::to_string(wrong) + " of " + std::to_string(wrong + 1)));
  }
}

TEST_CASE("an image whose label does not count is no mistake") {
  const Picture picture =
      draw_mistakes(std::vector<float>(12, 255.f), 2, 2, {kIgnoredLabel, 1, 2}, {kIgnoredLabel + 1, 1, 0});
  CHECK(count_black(picture.image) == 1);
  CHECK(has_caption(picture.image, 0, "2 > 0"));
  CHECK(has_title(picture.image, "1 of 2"));
}

TEST_CASE("an image without a prediction is among the mistakes") {
  const Picture picture = draw_mistakes(std::vector<float>(4, 255.f), 2, 2, {1}, {-1});
  CHECK(count_black(picture.image) == 1);
  CHECK(has_caption(picture.image, 0, "1 > -1"));
}
