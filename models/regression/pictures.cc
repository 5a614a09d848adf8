#include "models/regression/pictures.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "data/maps/grey_tile.h"
#include "data/maps/stroke_font.h"

namespace isobar {
namespace {

constexpr int kTile = 132;   // size of a drawn image, in pixels
constexpr int kMargin = 12;  // around the picture, and between images
constexpr int kTitle = 26;

// The first channel of sample b.
std::span<const double> first_channel(const Tensor& pictures, const std::vector<double>& values, std::int64_t b) {
  const std::int64_t points = pictures.size(2) * pictures.size(3);
  return std::span(values).subspan(static_cast<std::size_t>(b * pictures.size(1) * points),
                                   static_cast<std::size_t>(points));
}

}  // namespace

Picture draw_regression(const RegressionSamples& samples) {
  struct Column {
    const char* title;
    const Tensor& tensor;
    std::vector<double> values;
  };
  const std::array columns{Column{"input", samples.input, samples.input.to_vector()},
                           Column{"prediction", samples.prediction, samples.prediction.to_vector()},
                           Column{"target", samples.target, samples.target.to_vector()}};
  const auto batch = static_cast<int>(samples.target.size(0));
  Image picture(kMargin + static_cast<int>(columns.size()) * (kTile + kMargin),
                kTitle + batch * (kTile + kMargin) + kMargin);
  for (std::size_t column = 0; column < columns.size(); ++column) {
    const auto& [title, tensor, values] = columns[column];
    const int left = kMargin + static_cast<int>(column) * (kTile + kMargin);
    draw_text(picture, left, kTitle - 8, title, {.size = 11});
    for (int b = 0; b < batch; ++b) {
      const auto [low, high] = std::ranges::minmax(first_channel(samples.target, columns.back().values, b));
      std::vector<float> darkness;
      for (const double value : first_channel(tensor, values, b))
        darkness.push_back(high > low ? static_cast<float>(255 * (high - value) / (high - low)) : 128.f);
      draw_grey_tile(picture, {left, kTitle + b * (kTile + kMargin), kTile}, darkness, tensor.size(2), tensor.size(3));
    }
  }
  return {.tag = "Visualization, prediction", .board = picture, .file = "prediction", .image = picture};
}

}  // namespace isobar
