// PNG files: libpng reads back the pixels that were written.
#include "data/maps/png.h"

#include <png.h>

#include <cstring>

#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

Image decode(const void* bytes, std::size_t size) {
  png_image header;
  std::memset(&header, 0, sizeof header);
  header.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_memory(&header, bytes, size) != 0);
  CHECK(header.format == PNG_FORMAT_RGB);
  Image image(static_cast<int>(header.width), static_cast<int>(header.height));
  header.format = PNG_FORMAT_RGB;
  REQUIRE(png_image_finish_read(&header, nullptr, image.pixels.data(), 0, nullptr) != 0);
  return image;
}

TEST_CASE("a PNG holds the pixels it was given", "[png]") {
  const testing::TemporaryFolder folder;
  Image image(31, 7, {1, 2, 3});
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; x += 2) {
      image.at(x, y) = {static_cast<std::uint8_t>(8 * x), static_cast<std::uint8_t>(30 * y), 255};
    }
  }
  const std::vector<std::byte> bytes = encode_png(image);
  const Image in_memory = decode(bytes.data(), bytes.size());
  CHECK(in_memory.width == 31);
  CHECK(in_memory.height == 7);
  CHECK(in_memory.pixels == image.pixels);

  write_png(folder / "picture.png", image);
  const std::string file = read_file(folder / "picture.png");
  CHECK(decode(file.data(), file.size()).pixels == image.pixels);
  CHECK_THROWS_AS(Image(0, 5), Error);
}

}  // namespace
}  // namespace isobar
