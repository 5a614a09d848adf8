// RGB images, and PNG files of them (libpng).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace isobar {

struct Rgb {
  std::uint8_t r = 0, g = 0, b = 0;
  friend bool operator==(const Rgb&, const Rgb&) = default;
};

struct Image {
  int width = 0, height = 0;
  std::vector<Rgb> pixels;  // [height, width], top row first

  Image(int w, int h, Rgb color = {255, 255, 255});
  Rgb& at(int x, int y) { return pixels[static_cast<std::size_t>(y) * width + x]; }
  Rgb at(int x, int y) const { return pixels[static_cast<std::size_t>(y) * width + x]; }
};

// The bytes of a PNG file.
std::vector<std::byte> encode_png(const Image& image);

// Written atomically (engine/files/atomic_file.h).
void write_png(const std::filesystem::path& path, const Image& image);

}  // namespace isobar
