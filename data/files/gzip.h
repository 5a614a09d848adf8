// Files that gzip has compressed (zlib).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace isobar {

inline constexpr std::size_t kMaxGzipRatio = 1032;  // deflate makes no more bytes of one

// Whether a file's contents begin as gzip's do.
bool is_gzip(std::string_view contents);

// The first `max_bytes` of what `contents` hold compressed, or all where that is less; only then are gzip's checksums
// looked at. Several streams one after another are one, as for gunzip. Memory is used for what is found, and addresses
// are reserved for what could be: no more than kMaxGzipRatio times the contents. An Error that names `path` where the
// contents are damaged or end too early.
std::vector<std::uint8_t> gunzip(std::string_view contents, std::size_t max_bytes, const std::string& path);

}  // namespace isobar
