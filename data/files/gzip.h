// Files that gzip has compressed (zlib).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/reader.h"

namespace isobar {

inline constexpr std::size_t kMaxGzipRatio = 1032;  // deflate makes no more bytes of one

// Whether a file's contents begin as gzip's do.
bool is_gzip(std::string_view contents);

// The first `max_bytes` of what `contents` hold compressed, or all where that is less; only then are gzip's checksums
// looked at. Several streams one after another are one, as for gunzip. Memory is used for what is found, and addresses
// are reserved for what could be: no more than kMaxGzipRatio times the contents. An Error that names `path` where the
// contents are damaged or end too early.
std::vector<std::uint8_t> gunzip(std::string_view contents, std::size_t max_bytes, const std::string& path);

// A file that is decompressed while it is read, in memory that does not depend on its size. A file that does not begin
// as gzip's do is read as it is.
class GunzippingReader {
 public:
  explicit GunzippingReader(const std::string& path);
  ~GunzippingReader();

  // Fills `out` with the next bytes; fewer at the end. Error as of gunzip().
  std::size_t read(std::span<char> out);

 private:
  struct Stream;
  std::size_t inflate_into(std::span<char> out);

  std::string path_;
  FileReader file_;
  std::uint64_t offset_ = 0;        // of the file's bytes that are not read yet
  std::unique_ptr<Stream> stream_;  // null: the file is not compressed
};

}  // namespace isobar
