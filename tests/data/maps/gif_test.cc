// GIF files: a decoder of the format reads back the pictures, with palettes of few and of many colours.
#include "data/maps/gif.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "data/maps/palette.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

using GifBytes = std::vector<std::uint8_t>;

// As the GIF89a specification (appendix F) tells a reader.
GifBytes decoded_lzw(const GifBytes& data) {
  std::size_t at = 0;
  const auto next_code = [&](int bits) {
    int code = 0;
    for (int bit = 0; bit < bits; ++bit, ++at) {
      if (at / 8 >= data.size()) throw Error("the codes end without an end code");
      code |= ((data[at / 8] >> (at % 8)) & 1) << bit;
    }
    return code;
  };
  std::vector<GifBytes> table;
  const auto clear = [&] {
    table.clear();
    for (int i = 0; i < 258; ++i) table.push_back({static_cast<std::uint8_t>(i)});
  };
  GifBytes out, before;
  int bits = 9;
  REQUIRE(next_code(bits) == 256);
  clear();
  while (true) {
    const int code = next_code(bits);
    if (code == 257) break;
    if (code == 256) {
      clear();
      bits = 9;
      before.clear();
      continue;
    }
    GifBytes text;
    if (code < static_cast<int>(table.size())) {
      text = table[static_cast<std::size_t>(code)];
    } else {
      if (code != static_cast<int>(table.size())) throw Error("a code that is not known yet");
      text = before;
      text.push_back(before.front());
    }
    out.insert(out.end(), text.begin(), text.end());
    if (!before.empty() && table.size() < 4096) {
      before.push_back(text.front());
      table.push_back(before);
    }
    if (static_cast<int>(table.size()) == 1 << bits && bits < 12) ++bits;
    before = text;
  }
  REQUIRE((at + 7) / 8 == data.size());
  return out;
}

struct Frame {
  std::vector<Rgb> pixels;
  int delay = 0;
};

struct Animation {
  int width = 0, height = 0;
  std::vector<Frame> frames;
};

Animation decoded(const std::string& file) {
  std::size_t at = 0;
  const auto byte = [&] { return static_cast<std::uint8_t>(file.at(at++)); };
  const auto number = [&] {
    const int low = byte();
    return low + 256 * byte();
  };
  const auto blocks = [&] {
    GifBytes all;
    for (std::uint8_t count = byte(); count > 0; count = byte())
      for (int i = 0; i < count; ++i) all.push_back(byte());
    return all;
  };
  REQUIRE(file.substr(0, 6) == "GIF89a");
  at = 6;
  Animation animation;
  animation.width = number();
  animation.height = number();
  REQUIRE((byte() & 0x80) == 0);  // no table for all pictures
  at += 2;
  int delay = 0;
  while (true) {
    const std::uint8_t kind = byte();
    if (kind == 0x3b) break;
    if (kind == 0x21) {
      if (byte() == 0xf9) {
        const std::size_t begin = at;
        delay = static_cast<std::uint8_t>(file[begin + 2]) + 256 * static_cast<std::uint8_t>(file[begin + 3]);
      }
      blocks();
      continue;
    }
    REQUIRE(kind == 0x2c);
    CHECK(number() == 0);
    CHECK(number() == 0);
    CHECK(number() == animation.width);
    CHECK(number() == animation.height);
    REQUIRE(byte() == 0x87);
    std::array<Rgb, 256> colors{};
    for (Rgb& color : colors) color = {byte(), byte(), byte()};
    REQUIRE(byte() == 8);
    Frame frame{.pixels = {}, .delay = delay};
    for (const std::uint8_t index : decoded_lzw(blocks())) frame.pixels.push_back(colors[index]);
    animation.frames.push_back(frame);
  }
  CHECK(at == file.size());
  return animation;
}

GifBytes repeatable(std::size_t count, int period) {
  GifBytes bytes;
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    bytes.push_back(static_cast<std::uint8_t>(period == 0 ? state >> 24 : i % static_cast<std::size_t>(period)));
  }
  return bytes;
}

}  // namespace

TEST_CASE("gif: LZW gives back what it got, with every number of bits and after the table is full") {
  for (const int period : {0, 1, 2, 7, 256})
    for (const std::size_t count :
         {0, 1, 2, 3, 254, 255, 256, 257, 766, 767, 768, 3838, 3839, 3840, 3841, 20000, 300000}) {
      const GifBytes bytes = repeatable(count, period);
      INFO("period " << period << ", " << count << " bytes");
      CHECK(decoded_lzw(gif_lzw(bytes)) == bytes);
    }
}

TEST_CASE("gif: an animation of pictures with few colours is exact") {
  const testing::TemporaryFolder folder;
  std::vector<Image> pictures;
  for (int i = 0; i < 3; ++i) {
    pictures.emplace_back(37, 11, Rgb{static_cast<std::uint8_t>(i), 2, 3});
    for (int x = 0; x < 37; ++x) pictures.back().at(x, (x + i) % 11) = {static_cast<std::uint8_t>(6 * x), 9, 200};
  }
  GifWriter writer(folder / "a.gif", 40);
  for (const Image& picture : pictures) writer.add(picture);
  CHECK_FALSE(std::filesystem::exists(folder / "a.gif"));
  writer.close();
  const Animation animation = decoded(read_file(folder / "a.gif"));
  CHECK(animation.width == 37);
  CHECK(animation.height == 11);
  REQUIRE(animation.frames.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(animation.frames[i].pixels == pictures[i].pixels);
    CHECK(animation.frames[i].delay == 40);
  }
  GifWriter other(folder / "b.gif");
  CHECK_THROWS_WITH(other.close(), ContainsSubstring("without any picture"));
  other.add(pictures[0]);
  CHECK_THROWS_WITH(other.add(Image(11, 37)), ContainsSubstring("11 x 37 pixels follows one of 37 x 11"));
}

TEST_CASE("gif: the compressed picture of any length ends with one empty block") {
  const testing::TemporaryFolder folder;
  bool is_whole_blocks = false;
  for (int width = 1; width <= 300 && !is_whole_blocks; ++width) {
    Image picture(width, 3);
    for (std::size_t i = 0; i < picture.pixels.size(); ++i)
      picture.pixels[i] = {static_cast<std::uint8_t>(97 * i), static_cast<std::uint8_t>(i / 7), 0};
    const PaletteImage drawn = with_palette(picture);
    is_whole_blocks = gif_lzw(drawn.indices).size() % 255 == 0;
    if (!is_whole_blocks) continue;
    GifWriter writer(folder / "a.gif");
    writer.add(picture);
    writer.close();
    CHECK(decoded(read_file(folder / "a.gif")).frames.size() == 1);
  }
  CHECK(is_whole_blocks);
}

TEST_CASE("palette: at most 256 colours, near those of the picture, exact for up to 256") {
  Image many(64, 64);
  for (int y = 0; y < 64; ++y)
    for (int x = 0; x < 64; ++x)
      many.at(x, y) = {static_cast<std::uint8_t>(4 * x), static_cast<std::uint8_t>(4 * y), 77};
  const PaletteImage drawn = with_palette(many);
  CHECK(drawn.colors.size() == 256);
  int furthest = 0;
  for (std::size_t i = 0; i < many.pixels.size(); ++i) {
    const Rgb a = many.pixels[i], b = drawn.colors[drawn.indices[i]];
    furthest = std::max({furthest, std::abs(a.r - b.r), std::abs(a.g - b.g), std::abs(a.b - b.b)});
  }
  CHECK(furthest <= 8);  // 64 x 64 colours in 256 boxes of 4 x 4, 4 apart: a mean is at most 6 away
  CHECK(with_palette(Image(5, 5, {9, 8, 7})).colors == std::vector<Rgb>{{9, 8, 7}});
  Image exact(256, 1);
  for (int x = 0; x < 256; ++x) exact.at(x, 0) = {static_cast<std::uint8_t>(x), 0, 0};
  const PaletteImage same = with_palette(exact);
  for (std::size_t i = 0; i < 256; ++i) CHECK(same.colors[same.indices[i]] == exact.pixels[i]);
}

TEST_CASE("gif: pictures too large for the format are refused by name") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.gif";
  GifWriter writer(path);
  CHECK_THROWS_WITH(writer.add(Image(65536, 1)), path + ": a picture of 65536 x 1 pixels is too large for a GIF");
  CHECK_THROWS_WITH(writer.add(Image(1, 65536)), path + ": a picture of 1 x 65536 pixels is too large for a GIF");
  CHECK_THROWS_WITH(writer.close(), path + ": an animation without any picture");
  writer.add(Image(65535, 1));
  writer.close();
  const Animation animation = decoded(read_file(path));
  CHECK(animation.width == 65535);
  CHECK(animation.height == 1);
  REQUIRE(animation.frames.size() == 1);
  CHECK(animation.frames[0].delay == 50);
}

TEST_CASE("palette: the box that is cut next is the one with most pixels times width") {
  // 300 greys: 200 pixels of each of the darkest ten, one of each other; the dark ones stay exact.
  Image image(2290, 1);
  std::vector<Rgb> colors;
  for (int i = 0; i < 300; ++i)
    colors.push_back({static_cast<std::uint8_t>(i % 256), static_cast<std::uint8_t>(i / 256), 0});
  int x = 0;
  for (int i = 0; i < 300; ++i)
    for (int n = 0; n < (i < 10 ? 200 : 1); ++n) image.at(x++, 0) = colors[static_cast<std::size_t>(i)];
  REQUIRE(x == 2290);
  const PaletteImage drawn = with_palette(image);
  CHECK(drawn.colors.size() == 256);
  for (int i = 0; i < 10; ++i)
    CHECK(drawn.colors[drawn.indices[static_cast<std::size_t>(200 * i)]] == image.at(200 * i, 0));
}
