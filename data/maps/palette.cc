#include "data/maps/palette.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>

namespace isobar {
namespace {

constexpr std::size_t kColors = 256;
constexpr std::array<std::uint8_t Rgb::*, 3> kChannels{&Rgb::r, &Rgb::g, &Rgb::b};

struct CountedColor {
  Rgb color;
  std::int64_t pixels = 0;
};

// A range of the list of colours.
struct ColorBox {
  std::size_t begin = 0, end = 0;
  std::uint8_t Rgb::*widest = nullptr;
  std::int64_t width = 0, pixels = 0;

  std::int64_t urgency() const { return width * pixels; }  // 0: it holds one colour
};

ColorBox box_of(const std::vector<CountedColor>& colors, std::size_t begin, std::size_t end) {
  ColorBox box{.begin = begin, .end = end};
  for (std::size_t i = begin; i < end; ++i) box.pixels += colors[i].pixels;
  for (const auto channel : kChannels) {
    std::uint8_t low = 255, high = 0;
    for (std::size_t i = begin; i < end; ++i) {
      low = std::min(low, colors[i].color.*channel);
      high = std::max(high, colors[i].color.*channel);
    }
    if (box.widest == nullptr || high - low > box.width) box.widest = channel, box.width = high - low;
  }
  return box;
}

// Sorts the box by its widest channel; both parts have at least one colour.
std::size_t median_of(std::vector<CountedColor>& colors, const ColorBox& box) {
  const auto first = colors.begin() + static_cast<std::ptrdiff_t>(box.begin),
             last = colors.begin() + static_cast<std::ptrdiff_t>(box.end);
  std::stable_sort(first, last, [&](const CountedColor& a, const CountedColor& b) {
    return a.color.*box.widest < b.color.*box.widest;
  });
  std::int64_t below = 0;
  std::size_t cut = box.begin;
  while (cut < box.end - 1 && 2 * below < box.pixels) below += colors[cut++].pixels;
  return std::max(cut, box.begin + 1);
}

Rgb mean_of(const std::vector<CountedColor>& colors, const ColorBox& box) {
  Rgb mean;
  for (const auto channel : kChannels) {
    double sum = 0;
    for (std::size_t i = box.begin; i < box.end; ++i)
      sum += static_cast<double>(colors[i].color.*channel) * static_cast<double>(colors[i].pixels);
    mean.*channel = static_cast<std::uint8_t>(std::lround(sum / static_cast<double>(box.pixels)));
  }
  return mean;
}

}  // namespace

PaletteImage with_palette(const Image& image) {
  const auto key = [](Rgb color) { return (color.r << 16) | (color.g << 8) | color.b; };
  std::map<int, CountedColor> counts;
  for (const Rgb& pixel : image.pixels) {
    CountedColor& counted = counts[key(pixel)];
    counted.color = pixel;
    ++counted.pixels;
  }
  std::vector<CountedColor> colors;
  for (const auto& [number, counted] : counts) colors.push_back(counted);
  std::vector<ColorBox> boxes{box_of(colors, 0, colors.size())};
  while (boxes.size() < kColors) {
    const auto next = std::ranges::max_element(boxes, {}, &ColorBox::urgency);
    if (next->urgency() == 0) break;
    const std::size_t cut = median_of(colors, *next);
    const ColorBox upper = box_of(colors, cut, next->end);
    *next = box_of(colors, next->begin, cut);
    boxes.push_back(upper);
  }
  PaletteImage result;
  std::map<int, std::uint8_t> numbers;
  for (const ColorBox& box : boxes) {
    for (std::size_t i = box.begin; i < box.end; ++i)
      numbers[key(colors[i].color)] = static_cast<std::uint8_t>(result.colors.size());
    result.colors.push_back(mean_of(colors, box));
  }
  for (const Rgb& pixel : image.pixels) result.indices.push_back(numbers.at(key(pixel)));
  return result;
}

}  // namespace isobar
