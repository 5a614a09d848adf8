#include "data/files/codecs.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>
#if ISOBAR_HAS_ZSTD
#include <zstd.h>
#endif
#if ISOBAR_HAS_LZ4
#include <lz4.h>
#endif
#if ISOBAR_HAS_BLOSC
#include <blosc.h>
#endif

#include "data/files/shuffle.h"
#include "engine/files/checksum.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

using CodecKind = Codec::Kind;
using CodecBytes = std::span<const std::byte>;

constexpr std::array<std::pair<CodecKind, const char*>, 7> kCodecNames = {{{CodecKind::zlib, "zlib"},
                                                                           {CodecKind::gzip, "gzip"},
                                                                           {CodecKind::zstd, "zstd"},
                                                                           {CodecKind::lz4, "lz4"},
                                                                           {CodecKind::blosc, "blosc"},
                                                                           {CodecKind::crc32c, "crc32c"},
                                                                           {CodecKind::shuffle, "shuffle"}}};
constexpr std::size_t kMaxDeflateRatio = 1032;  // the largest of zlib's, lz4's, blosclz' and snappy's
constexpr std::size_t kMaxZstdRatio = 43691;
constexpr std::size_t kChecksumBytes = 4;

bool is_compressor(CodecKind kind) {
  return kind != CodecKind::crc32c && kind != CodecKind::shuffle;
}

std::uint32_t little_endian_32(CodecBytes bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | std::to_integer<std::uint32_t>(bytes[i]);
  return value;
}

// Each of these fills `to` and returns whether exactly that many bytes came out.

bool undo_deflate(CodecBytes from, std::span<std::byte> to, bool has_gzip_header) {
  constexpr int kLargestWindow = 15, kGzipOnly = 16;
  constexpr std::size_t kMaxPiece = std::size_t{1} << 30;  // zlib counts in 32 bits
  z_stream stream = {};
  if (inflateInit2(&stream, kLargestWindow + (has_gzip_header ? kGzipOnly : 0)) != Z_OK) return false;
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  int status = Z_OK;
  std::byte beyond{};  // room for a byte too many, so that the stream's end is looked for
  bool is_beyond = false;
  while (status == Z_OK) {
    stream.next_in = reinterpret_cast<const Bytef*>(from.data());
    stream.avail_in = static_cast<uInt>(std::min(from.size(), kMaxPiece));
    const std::span<std::byte> room = to.empty() ? std::span(&beyond, 1) : to.first(std::min(to.size(), kMaxPiece));
    is_beyond = to.empty();
    stream.next_out = reinterpret_cast<Bytef*>(room.data());
    stream.avail_out = static_cast<uInt>(room.size());
    const std::size_t offered = stream.avail_in;
    status = inflate(&stream, Z_NO_FLUSH);
    from = from.subspan(offered - stream.avail_in);
    const std::size_t got = room.size() - stream.avail_out;
    if (is_beyond && got > 0) return false;
    if (!is_beyond) to = to.subspan(got);
  }
  return status == Z_STREAM_END && to.empty();
}

bool undo_zstd([[maybe_unused]] CodecBytes from, [[maybe_unused]] std::span<std::byte> to) {
#if ISOBAR_HAS_ZSTD
  thread_local const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  return context != nullptr &&
         ZSTD_decompressDCtx(context.get(), to.data(), to.size(), from.data(), from.size()) == to.size();
#else
  return false;
#endif
}

// numcodecs writes the size before the block.
bool undo_lz4([[maybe_unused]] CodecBytes from, [[maybe_unused]] std::span<std::byte> to) {
#if ISOBAR_HAS_LZ4
  if (from.size() < 4 || from.size() > INT_MAX || to.size() > INT_MAX || little_endian_32(from) != to.size())
    return false;
  from = from.subspan(4);
  return LZ4_decompress_safe(reinterpret_cast<const char*>(from.data()), reinterpret_cast<char*>(to.data()),
                             static_cast<int>(from.size()), static_cast<int>(to.size())) == static_cast<int>(to.size());
#else
  return false;
#endif
}

// Its header: version, version of the compressor, flags, element; then the bytes before, of a block, and after.
constexpr std::size_t kBloscHeader = 16;
bool is_blosc_of_zstd(CodecBytes from) {
  return from.size() >= kBloscHeader && std::to_integer<int>(from[2]) >> 5 == 4;
}

bool undo_blosc([[maybe_unused]] CodecBytes from, [[maybe_unused]] std::span<std::byte> to) {
#if ISOBAR_HAS_BLOSC
  std::size_t bytes = 0;
  // From the header, before memory is taken for what it says.
  const bool fits = from.size() >= kBloscHeader && little_endian_32(from.subspan(4)) == to.size() &&
                    little_endian_32(from.subspan(12)) == from.size() &&
                    blosc_cbuffer_validate(from.data(), from.size(), &bytes) == 0 && bytes == to.size();
  if (!fits || to.size() > INT_MAX) return false;
  return blosc_decompress_ctx(from.data(), to.data(), to.size(), 1) == static_cast<int>(to.size());
#else
  return false;
#endif
}

bool decompress(CodecKind kind, CodecBytes from, std::span<std::byte> to) {
  switch (kind) {
    case CodecKind::zlib:
      return undo_deflate(from, to, false);
    case CodecKind::gzip:
      return undo_deflate(from, to, true);
    case CodecKind::zstd:
      return undo_zstd(from, to);
    case CodecKind::lz4:
      return undo_lz4(from, to);
    case CodecKind::blosc:
      return undo_blosc(from, to);
    default:
      return false;
  }
}

std::size_t max_ratio(CodecKind kind, CodecBytes from) {
  const bool is_zstd = kind == CodecKind::zstd || (kind == CodecKind::blosc && is_blosc_of_zstd(from));
  return is_zstd ? kMaxZstdRatio : kMaxDeflateRatio;
}

std::vector<std::byte> decompressed(CodecKind kind, CodecBytes from, std::size_t size, const std::string& where) {
  std::vector<std::byte> to;
  bool whole = size / max_ratio(kind, from) <= from.size();
  if (whole) {
    to.resize(size);
    whole = decompress(kind, from, to);
  }
  ISOBAR_CHECK(whole, where, " is damaged: its ", from.size(), " bytes are no ", size, " bytes that ", name_of(kind),
               " has compressed");
  return to;
}

void take_checksum(const Codec& codec, std::vector<std::byte>& bytes, const std::string& where) {
  ISOBAR_CHECK(bytes.size() >= kChecksumBytes, where, " is damaged: its ", bytes.size(), " bytes hold no checksum");
  const std::size_t held = bytes.size() - kChecksumBytes;
  const CodecBytes all(bytes);
  const CodecBytes checked = all.subspan(codec.checksum_first ? kChecksumBytes : 0, held);
  const std::uint32_t stored = little_endian_32(all.subspan(codec.checksum_first ? 0 : held));
  ISOBAR_CHECK(crc32c(checked) == stored, where, " is damaged: its CRC-32C is not the one that is stored with it");
  if (codec.checksum_first) bytes.erase(bytes.begin(), bytes.begin() + kChecksumBytes);
  bytes.resize(held);
}

}  // namespace

const char* name_of(CodecKind kind) {
  return std::ranges::find(kCodecNames, kind, &decltype(kCodecNames)::value_type::first)->second;
}

std::optional<CodecKind> codec_named(std::string_view name) {
  for (const auto& [kind, known] : kCodecNames)
    if (name == known) return kind;
  return std::nullopt;
}

bool build_undoes(CodecKind kind) {
  switch (kind) {
    case CodecKind::zstd:
      return ISOBAR_HAS_ZSTD;
    case CodecKind::lz4:
      return ISOBAR_HAS_LZ4;
    case CodecKind::blosc:
      return ISOBAR_HAS_BLOSC;
    default:
      return true;
  }
}

void check_codecs(std::span<const Codec> codecs, const std::string& where) {
  const char* compressor = nullptr;
  for (const Codec& codec : codecs) {
    const char* name = name_of(codec.kind);
    ISOBAR_CHECK(build_undoes(codec.kind), where, " is compressed by ", name,
                 ", which this build of isobar cannot undo; install lib", name,
                 "-dev (scripts/install does), and build "
                 "isobar again");
    if (!is_compressor(codec.kind)) continue;
    // What comes out of the outer one would have no known size.
    ISOBAR_CHECK(compressor == nullptr, where, " is compressed twice, by ", compressor, " and by ", name,
                 "; isobar undoes one compressor");
    compressor = name;
  }
}

std::vector<std::byte> undo_codecs(std::span<const Codec> codecs, std::vector<std::byte> bytes, std::size_t size,
                                   const std::string& where) {
  for (std::size_t i = codecs.size(); i-- > 0;) {
    const auto is_checksum = [](const Codec& codec) { return codec.kind == CodecKind::crc32c; };
    const auto checksums = static_cast<std::size_t>(std::ranges::count_if(codecs.first(i), is_checksum));
    switch (codecs[i].kind) {
      case CodecKind::crc32c:
        take_checksum(codecs[i], bytes, where);
        break;
      case CodecKind::shuffle: {
        std::vector<std::byte> whole;
        unshuffle(bytes, codecs[i].element, whole);
        bytes.swap(whole);
        break;
      }
      default:  // a checksum that was made before lies within what was compressed
        bytes = decompressed(codecs[i].kind, bytes, size + kChecksumBytes * checksums, where);
    }
  }
  ISOBAR_CHECK(bytes.size() == size, where, " is truncated or damaged: it has ", bytes.size(), " bytes, not ", size);
  return bytes;
}

std::vector<std::byte> zlib_compressed(std::span<const std::byte> bytes, int level) {
  uLongf size = compressBound(bytes.size());
  std::vector<std::byte> compressed(size);
  const int status = compress2(reinterpret_cast<Bytef*>(compressed.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), level);
  ISOBAR_CHECK(status == Z_OK, "zlib cannot compress ", bytes.size(), " bytes at level ", level);
  compressed.resize(size);
  return compressed;
}

}  // namespace isobar
