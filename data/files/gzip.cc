#include "data/files/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::size_t kPiece = 1 << 16;  // bytes in, and bytes out, of one call of inflate

// zlib's state, released at the end.
struct Inflater {
  z_stream stream = {};

  explicit Inflater(const std::string& path) {
    constexpr int kLargestWindow = 15, kGzipOnly = 16;
    ISOBAR_CHECK(inflateInit2(&stream, kLargestWindow + kGzipOnly) == Z_OK, path, ": zlib cannot be started");
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

}  // namespace

bool is_gzip(std::string_view contents) {
  return contents.starts_with("\x1f\x8b");
}

std::vector<std::uint8_t> gunzip(std::string_view contents, std::size_t max_bytes, const std::string& path) {
  Inflater inflater(path);
  z_stream& stream = inflater.stream;
  std::vector<std::uint8_t> found;
  found.reserve(std::min(max_bytes, kMaxGzipRatio * contents.size()));  // growing would hold it twice
  std::array<std::uint8_t, kPiece> piece;
  std::size_t taken = 0;  // of the contents
  bool is_at_end = false;
  while (found.size() < max_bytes && !is_at_end) {
    const std::size_t offered = std::min(kPiece, contents.size() - taken);
    const std::size_t wanted = std::min(kPiece, max_bytes - found.size());
    stream.next_in = reinterpret_cast<const Bytef*>(contents.data() + taken);
    stream.avail_in = static_cast<uInt>(offered);
    stream.next_out = piece.data();
    stream.avail_out = static_cast<uInt>(wanted);
    const int status = inflate(&stream, Z_NO_FLUSH);
    const std::size_t got = wanted - stream.avail_out;
    taken += offered - stream.avail_in;
    found.insert(found.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(got));

    ISOBAR_CHECK(status != Z_BUF_ERROR, path, " is truncated: its gzip stream has no end");
    ISOBAR_CHECK(status == Z_OK || status == Z_STREAM_END, path, " is damaged: its gzip stream cannot be decompressed",
                 stream.msg != nullptr ? concat(" (", stream.msg, ")") : "");
    is_at_end = status == Z_STREAM_END && taken == contents.size();
    if (status == Z_STREAM_END && !is_at_end) inflateReset(&stream);
  }
  return found;
}

}  // namespace isobar
