#include "data/maps/png.h"

#include <png.h>

#include <cstring>

#include "engine/files/atomic_file.h"
#include "kernels/common/check.h"

namespace isobar {

Image::Image(int w, int h, Rgb color) : width(w), height(h) {
  ISOBAR_CHECK(w > 0 && h > 0, "an image of ", w, " x ", h, " pixels");
  pixels.assign(static_cast<std::size_t>(w) * h, color);
}

std::vector<std::byte> encode_png(const Image& image) {
  static_assert(sizeof(Rgb) == 3);
  png_image header;
  std::memset(&header, 0, sizeof header);
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGB;

  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  std::vector<std::byte> bytes(size);
  const int written = png_image_write_to_memory(&header, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr);
  ISOBAR_CHECK(written != 0, "a picture cannot be encoded as PNG: ", header.message);
  bytes.resize(size);
  return bytes;
}

void write_png(const std::filesystem::path& path, const Image& image) {
  const std::vector<std::byte> bytes = encode_png(image);
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace isobar
