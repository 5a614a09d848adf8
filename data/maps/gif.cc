#include "data/maps/gif.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "data/maps/palette.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr int kIndexBits = 8, kMaxBits = 12;
constexpr int kClear = 1 << kIndexBits, kEnd = kClear + 1, kFirstFree = kClear + 2, kCodes = 1 << kMaxBits;

// Codes as a sequence of bits, the lowest first.
class BitWriter {
 public:
  void put(int code, int bits) {
    pending_ |= static_cast<std::uint32_t>(code) << count_;
    count_ += bits;
    for (; count_ >= 8; count_ -= 8, pending_ >>= 8) bytes_.push_back(static_cast<std::uint8_t>(pending_ & 0xff));
  }
  std::vector<std::uint8_t> finish() {
    if (count_ > 0) bytes_.push_back(static_cast<std::uint8_t>(pending_ & 0xff));
    return std::move(bytes_);
  }

 private:
  std::vector<std::uint8_t> bytes_;
  std::uint32_t pending_ = 0;
  int count_ = 0;
};

// Bytes of a GIF file; numbers of two bytes, the lower first.
class Bytes {
 public:
  Bytes& text(std::string_view text) {
    for (const char c : text) byte(c);
    return *this;
  }
  Bytes& byte(int value) {
    bytes_.push_back(static_cast<std::byte>(value & 0xff));
    return *this;
  }
  Bytes& number(int value) { return byte(value).byte(value >> 8); }
  // In blocks of at most 255 bytes, each after its length, and an empty one.
  Bytes& blocks(std::span<const std::uint8_t> data) {
    constexpr std::size_t kBlock = 255;
    for (std::size_t first = 0; first < data.size(); first += kBlock) {
      const std::span<const std::uint8_t> block = data.subspan(first, std::min(kBlock, data.size() - first));
      byte(static_cast<int>(block.size()));
      for (const std::uint8_t value : block) byte(value);
    }
    return byte(0);
  }
  std::span<const std::byte> all() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

std::vector<std::uint8_t> gif_lzw(std::span<const std::uint8_t> indices) {
  BitWriter out;
  std::vector<std::int16_t> next(static_cast<std::size_t>(kCodes) << kIndexBits);  // code of (code, index); 0: none
  int free = kFirstFree, bits = kIndexBits + 1;
  const auto clear = [&] {
    out.put(kClear, bits);
    std::ranges::fill(next, std::int16_t{0});
    free = kFirstFree;
    bits = kIndexBits + 1;
  };
  clear();
  int code = -1;  // of the indices since the last code that was written
  for (const std::uint8_t index : indices) {
    if (code < 0) {
      code = index;
      continue;
    }
    std::int16_t& longer = next[(static_cast<std::size_t>(code) << kIndexBits) | index];
    if (longer != 0) {
      code = longer;
      continue;
    }
    out.put(code, bits);
    if (free == kCodes) {
      clear();
    } else {
      // The reader learns a code one step later, so that the number of bits grows one code later than here.
      if (free == 1 << bits) ++bits;
      longer = static_cast<std::int16_t>(free++);
    }
    code = index;
  }
  if (code >= 0) {
    out.put(code, bits);
    if (free == 1 << bits && bits < kMaxBits) ++bits;
  }
  out.put(kEnd, bits);
  return out.finish();
}

GifWriter::GifWriter(const std::filesystem::path& path, int centiseconds) : file_(path), centiseconds_(centiseconds) {}

void GifWriter::add(const Image& image) {
  constexpr int kLongest = 65535;
  ISOBAR_CHECK(image.width <= kLongest && image.height <= kLongest, file_.path().string(), ": a picture of ",
               image.width, " x ", image.height, " pixels is too large for a GIF");
  Bytes bytes;
  if (width_ == 0) {
    width_ = image.width;
    height_ = image.height;
    constexpr int kEightBitsNoTable = 0x70, kForever = 0;
    bytes.text("GIF89a").number(width_).number(height_).byte(kEightBitsNoTable).byte(0).byte(0);
    bytes.byte(0x21).byte(0xff).byte(11).text("NETSCAPE2.0").byte(3).byte(1).number(kForever).byte(0);
  }
  ISOBAR_CHECK(image.width == width_ && image.height == height_, file_.path().string(), ": a picture of ", image.width,
               " x ", image.height, " pixels follows one of ", width_, " x ", height_);
  const PaletteImage drawn = with_palette(image);
  bytes.byte(0x21).byte(0xf9).byte(4).byte(0).number(centiseconds_).byte(0).byte(0);
  constexpr int kTableOf256 = 0x87;
  bytes.byte(0x2c).number(0).number(0).number(width_).number(height_).byte(kTableOf256);
  for (std::size_t i = 0; i < 256; ++i) {
    const Rgb color = i < drawn.colors.size() ? drawn.colors[i] : Rgb{};
    bytes.byte(color.r).byte(color.g).byte(color.b);
  }
  bytes.byte(kIndexBits).blocks(gif_lzw(drawn.indices));
  file_.write(bytes.all());
}

void GifWriter::close() {
  ISOBAR_CHECK(width_ > 0, file_.path().string(), ": an animation without any picture");
  file_.write(Bytes().byte(0x3b).all());
  file_.commit();
}

}  // namespace isobar
