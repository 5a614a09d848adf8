// IDX files made by a test, plain and compressed.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "tests/harness/data_files.h"

namespace isobar::testing {

// The header of an IDX file: type, number of dimensions, sizes.
inline std::string idx_header(const std::vector<std::uint32_t>& shape, char type = 0x08) {
  std::string bytes = {0, 0, type, static_cast<char>(shape.size())};
  for (const std::uint32_t size : shape)
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(size >> shift & 0xff);
  return bytes;
}

// As `gzip` would compress it.
inline std::string gzipped(const std::string& bytes) {
  z_stream stream = {};
  ISOBAR_CHECK(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib fails in a test");
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<const Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  ISOBAR_CHECK(status == Z_STREAM_END, "zlib fails in a test");
  return out;
}

// Images [N, height, width] and their labels [N], a byte each.
struct ImageSet {
  std::uint32_t height = 0, width = 0;
  std::string pixels, labels;
};

// The two files of the training set (train) or of the validation set (t10k) of MNIST's kind.
inline void write_images(const std::filesystem::path& folder, const std::string& prefix, const ImageSet& set) {
  const auto count = static_cast<std::uint32_t>(set.labels.size());
  write_text(folder / (prefix + "-images-idx3-ubyte"), idx_header({count, set.height, set.width}) + set.pixels);
  write_text(folder / (prefix + "-labels-idx1-ubyte"), idx_header({count}) + set.labels);
}

}  // namespace isobar::testing
