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

// What is behind the last member of a stream that a tape or a disk has filled up, as gzip takes it.
bool is_padding(std::string_view rest) {
  return rest.find_first_not_of('\0') == std::string_view::npos;
}

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
    is_at_end = status == Z_STREAM_END && is_padding(contents.substr(taken));
    if (status == Z_STREAM_END && !is_at_end) inflateReset(&stream);
  }
  return found;
}

struct GunzippingReader::Stream {
  Inflater inflater;
  std::array<std::byte, kPiece> input = {};
  std::size_t begin = 0, end = 0;  // of the input that is not inflated yet
  bool is_behind_member = false;   // padding follows, another member, or nothing
  bool is_over = false;

  explicit Stream(const std::string& path) : inflater(path) {}
};

GunzippingReader::GunzippingReader(const std::string& path) : path_(path), file_(path) {
  std::array<char, 2> magic{};
  const std::size_t got = file_.read_up_to_end(0, std::as_writable_bytes(std::span(magic)));
  if (is_gzip({magic.data(), got})) stream_ = std::make_unique<Stream>(path);
}

GunzippingReader::~GunzippingReader() = default;

// One call of inflate; returns the bytes that came out, perhaps none.
std::size_t GunzippingReader::inflate_into(std::span<char> out) {
  Stream& from = *stream_;
  if (from.begin == from.end) {
    from.begin = 0;
    from.end = file_.read_up_to_end(offset_, from.input);
    offset_ += from.end;
    ISOBAR_CHECK(from.end > 0 || from.is_behind_member, path_, " is truncated: its gzip stream has no end");
    from.is_over = from.end == 0;
  }
  if (from.is_behind_member) {
    while (from.begin < from.end && from.input[from.begin] == std::byte{0}) ++from.begin;
    if (from.begin == from.end) return 0;
    from.is_behind_member = false;
    inflateReset(&from.inflater.stream);
  }
  z_stream& stream = from.inflater.stream;
  const std::size_t wanted = std::min(out.size(), kPiece);
  stream.next_in = reinterpret_cast<const Bytef*>(from.input.data() + from.begin);
  stream.avail_in = static_cast<uInt>(from.end - from.begin);
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(wanted);
  const int status = inflate(&stream, Z_NO_FLUSH);
  ISOBAR_CHECK(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, path_,
               " is damaged: its gzip stream cannot be decompressed",
               stream.msg != nullptr ? concat(" (", stream.msg, ")") : "");
  from.begin = from.end - stream.avail_in;
  from.is_behind_member = status == Z_STREAM_END;
  return wanted - stream.avail_out;
}

std::size_t GunzippingReader::read(std::span<char> out) {
  if (!stream_) {
    const std::size_t got = file_.read_up_to_end(offset_, std::as_writable_bytes(out));
    offset_ += got;
    return got;
  }
  std::size_t filled = 0;
  while (filled < out.size() && !stream_->is_over) filled += inflate_into(out.subspan(filled));
  return filled;
}

}  // namespace isobar
