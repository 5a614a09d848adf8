// Lines, blended pixels and grey tiles.
#include "data/maps/pen.h"

#include <cmath>
#include <utility>
#include <vector>

#include "data/maps/grey_tile.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

constexpr Rgb kBlack{0, 0, 0}, kPaper{255, 255, 255};

}  // namespace

TEST_CASE("pen: the distance is from the segment, and not from the line beyond its ends") {
  const PenStroke stroke{{2, 1}, {6, 1}};
  CHECK(distance({4, 3}, stroke) == 2);
  CHECK(distance({2, 1}, stroke) == 0);
  CHECK(distance({9, 5}, stroke) == 5);
  CHECK(distance({-1, -3}, stroke) == 5);
  CHECK(distance({5, 5}, {{2, 1}, {2, 1}}) == 5);  // a point
  CHECK(distance({0, 2}, {{0, 0}, {2, 2}}) == testing::Approx(std::sqrt(2.0)));
}

TEST_CASE("pen: a colour is blended by its share, rounded, each channel alone") {
  const auto blended = [](Rgb pixel, Rgb color, double share) {
    blend(pixel, color, share);
    return pixel;
  };
  const Rgb from{10, 20, 200}, to{20, 0, 100};
  CHECK(blended(from, to, 0) == from);
  CHECK(blended(from, to, 1) == to);
  CHECK(blended(from, to, 0.25) == Rgb{13, 15, 175});  // 12.5 is rounded up
}

TEST_CASE("pen: a line is as wide as asked for, ends round, and is clipped at every side") {
  Image image(9, 7);
  const std::vector<PenPoint> across{{2, 3.5}, {7, 3.5}};
  draw_line(image, across, 2, kBlack);
  CHECK(image.at(4, 3) == kBlack);
  CHECK(image.at(4, 2) == Rgb{128, 128, 128});  // half of the row above
  CHECK(image.at(4, 4) == Rgb{128, 128, 128});
  CHECK(image.at(4, 1) == kPaper);
  CHECK(image.at(4, 5) == kPaper);
  CHECK(image.at(0, 3) == kPaper);
  CHECK_FALSE(image.at(1, 3) == kPaper);
  CHECK_FALSE(image.at(7, 3) == kPaper);
  CHECK(image.at(8, 3) == kPaper);

  Image bent(5, 5);  // through every point, as far as the picture goes
  draw_line(bent, std::vector<PenPoint>{{-3, 0.5}, {4.5, 0.5}, {4.5, 9}}, 1, kBlack);
  for (int i = 0; i < 5; ++i) {
    CHECK(bent.at(i, 0) == kBlack);
    CHECK(bent.at(4, i) == kBlack);
  }
  CHECK(bent.at(0, 2) == kPaper);
  const Image before = bent;
  draw_line(bent, std::vector<PenPoint>{{2, 2}}, 3, kBlack);  // one point is no line
  draw_line(bent, std::vector<PenPoint>{{-9, -9}, {-9, 30}}, 3, kBlack);
  CHECK(bent.pixels == before.pixels);
}

TEST_CASE("grey tile: cells are enlarged in their place, dark is high, and values beyond are clipped") {
  Image image(9, 8, Rgb{1, 2, 3});
  const std::vector<float> darkness{0, 100, 300, -5, 255, 30.5F};  // 2 rows of 3
  draw_grey_tile(image, {.left = 2, .top = 1, .size = 6}, darkness, 2, 3);
  const auto grey = [&](int x, int y) { return static_cast<int>(image.at(x, y).g); };
  for (const int y : {1, 2, 3}) {
    CHECK(grey(2, y) == 255);
    CHECK(grey(3, y) == 255);
    CHECK(grey(4, y) == 155);
    CHECK(grey(7, y) == 0);  // 300
  }
  for (const int y : {4, 5, 6}) {
    CHECK(grey(2, y) == 255);  // -5
    CHECK(grey(5, y) == 0);
    CHECK(grey(7, y) == 224);
  }
  for (const auto& [x, y] : {std::pair(1, 3), std::pair(8, 3), std::pair(4, 0), std::pair(4, 7)})
    CHECK(image.at(x, y) == Rgb{1, 2, 3});
}
