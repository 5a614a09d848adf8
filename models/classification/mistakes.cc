#include "models/classification/mistakes.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "data/maps/grey_tile.h"
#include "data/maps/stroke_font.h"
#include "kernels/common/check.h"
#include "kernels/cross_entropy.h"

namespace isobar {
namespace {

constexpr int kColumns = 8, kRows = 4;
constexpr int kTile = 84;    // size of a drawn image, in pixels
constexpr int kLabel = 22;   // height of the text below it
constexpr int kMargin = 12;  // around the picture, and between images
constexpr int kTitle = 32;

}  // namespace

Picture draw_mistakes(std::span<const float> images, std::int64_t height, std::int64_t width,
                      const std::vector<std::int32_t>& labels, const std::vector<std::int32_t>& predictions) {
  std::vector<std::size_t> wrong;
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (labels[i] != kIgnoredLabel && labels[i] != predictions[i]) wrong.push_back(i);
  const std::int64_t judged = std::ssize(labels) - std::ranges::count(labels, kIgnoredLabel);
  Image picture(kMargin + kColumns * (kTile + kMargin), kTitle + kRows * (kTile + kLabel + kMargin) + kMargin);
  draw_text(picture, kMargin, 22, concat(wrong.size(), " of ", judged, " read wrongly; label > what it was taken for"),
            {.size = 11});
  const auto pixels = static_cast<std::size_t>(height * width);
  for (std::size_t k = 0; k < std::min<std::size_t>(wrong.size(), kColumns * kRows); ++k) {
    const int left = kMargin + static_cast<int>(k % kColumns) * (kTile + kMargin);
    const int top = kTitle + static_cast<int>(k / kColumns) * (kTile + kLabel + kMargin);
    draw_grey_tile(picture, {left, top, kTile}, images.subspan(wrong[k] * pixels, pixels), height, width);
    draw_text(picture, left + kTile / 2, top + kTile + 16, concat(labels[wrong[k]], " > ", predictions[wrong[k]]),
              {.size = 11, .align = Align::centre});
  }
  return {.tag = "Visualization, read wrongly", .board = picture, .file = "wrong", .image = picture};
}

}  // namespace isobar
