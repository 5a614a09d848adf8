// Undoes what chunks of Zarr stores are compressed and checked with, and compresses by zlib. codecs.cc alone includes
// the libraries' headers.
//
// Compressed bytes are not trusted: how many bytes come out is known before, and less or more is an Error. No memory is
// taken for what cannot come out: at most 1032 bytes of one, and 43,691 of one by zstd, whose format repeats a byte
// 131,072 times for three.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isobar {

struct Codec {
  enum class Kind : std::uint8_t { zlib, gzip, zstd, lz4, blosc, crc32c, shuffle } kind = Kind::zlib;
  std::size_t element = 1;      // shuffle: bytes of an element, at least 1
  bool checksum_first = false;  // crc32c: whether the checksum lies before the bytes, not behind
};

const char* name_of(Codec::Kind kind);  // as in Zarr's metadata
std::optional<Codec::Kind> codec_named(std::string_view name);
bool build_undoes(Codec::Kind kind);  // whether this build has the library that it needs

// Error that begins with `where` if this build cannot undo these codecs.
void check_codecs(std::span<const Codec> codecs, const std::string& where);

// Undoes codecs, which stand in the order they were applied in, until `size` bytes are left. Error that begins with
// `where`, the path of the chunk, if something else comes out.
std::vector<std::byte> undo_codecs(std::span<const Codec> codecs, std::vector<std::byte> bytes, std::size_t size,
                                   const std::string& where);

// The bytes compressed as zlib does. level: 1 (fast) to 9 (small).
std::vector<std::byte> zlib_compressed(std::span<const std::byte> bytes, int level);

}  // namespace isobar
