// The picture of a regression: a row for each sample, on the grey scale of its target.
#include "models/regression/pictures.h"

#include <vector>

#include "tests/harness/testing.h"

using namespace isobar;

namespace {

// [B, channels, 1, 2]
Tensor of_two_points(std::int64_t batch, std::int64_t channels, const std::vector<double>& values) {
  Tensor t = Tensor::empty({batch, channels, 1, 2}, DType::fp32, Device{});
  t.set_values(values);
  return t;
}

}  // namespace

TEST_CASE("regression picture: the first channel of input, prediction and target, black where the target is least") {
  const RegressionSamples samples{.input = of_two_points(2, 1, {0, 10, 7, 7}),
                                  .prediction = of_two_points(2, 2, {2.5, 20, 9, 9, 1, 2, 9, 9}),
                                  .target = of_two_points(2, 2, {0, 10, 50, 60, 3, 3, 50, 60})};
  const Picture picture = draw_regression(samples);
  CHECK(picture.file == "prediction");
  CHECK(picture.tag == "Visualization, prediction");
  // Tiles of 132 pixels, 12 apart, below a title of 26.
  CHECK(picture.image.width == 12 + 3 * (132 + 12));
  CHECK(picture.image.height == 26 + 2 * (132 + 12) + 12);
  CHECK(picture.board.pixels == picture.image.pixels);
  const auto grey = [&](int column, int row, int half) {
    const Rgb pixel = picture.image.at(12 + column * 144 + 33 + half * 66, 26 + row * 144 + 66);
    CHECK((pixel.r == pixel.g && pixel.g == pixel.b));
    return static_cast<int>(pixel.r);
  };
  CHECK(grey(0, 0, 0) == 0);  // input
  CHECK(grey(0, 0, 1) == 255);
  CHECK(grey(1, 0, 0) == 63);   // a quarter of the target's range
  CHECK(grey(1, 0, 1) == 255);  // beyond it
  CHECK(grey(2, 0, 0) == 0);
  CHECK(grey(2, 0, 1) == 255);
  // Where the target is constant there is no scale.
  for (const int column : {0, 1, 2})
    for (const int half : {0, 1}) CHECK(grey(column, 1, half) == 127);
}
