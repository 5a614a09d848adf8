// Animations as GIF files, written by hand: GIF89a with LZW, each picture with a palette of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "data/maps/png.h"
#include "engine/files/atomic_file.h"

namespace isobar {

class GifWriter {
 public:
  // The animation repeats for ever; each picture is shown for `centiseconds`.
  explicit GifWriter(const std::filesystem::path& path, int centiseconds = 50);

  // All pictures have the size of the first one; Error for another. No side is longer than 65,535 pixels.
  void add(const Image& image);
  // The file has its name only then. Error without any picture.
  void close();

 private:
  AtomicFile file_;
  int centiseconds_;
  int width_ = 0, height_ = 0;  // of the first picture
};

// LZW as GIF has it: codes of 9 to 12 bits, the lowest bits first, that begin with a clear code and end with an end
// code. At most 4,096 codes are known at a time; then all are forgotten.
std::vector<std::uint8_t> gif_lzw(std::span<const std::uint8_t> indices);

}  // namespace isobar
