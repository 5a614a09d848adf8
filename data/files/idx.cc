#include "data/files/idx.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "data/files/gzip.h"
#include "engine/files/reader.h"
#include "engine/storage.h"
#include "engine/tensor.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

constexpr std::size_t kMagicBytes = 4, kSizeBytes = 4;
constexpr std::uint8_t kUnsignedByte = 0x08;

// The first bytes of what a file holds, decompressed; fewer where it ends before.
std::vector<std::uint8_t> first_bytes(std::string_view contents, std::size_t max_bytes, const std::string& path) {
  if (is_gzip(contents)) return gunzip(contents, max_bytes, path);
  const std::string_view first = contents.substr(0, max_bytes);
  return {first.begin(), first.end()};
}

// How many bytes can come out of a file's contents at most.
std::size_t most_held_by(std::string_view contents) {
  return (is_gzip(contents) ? kMaxGzipRatio : 1) * contents.size();
}

std::string hexadecimal(std::uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {'0', 'x', kDigits[byte / 16], kDigits[byte % 16]};
}

std::string type_name(std::uint8_t type) {
  switch (type) {
    case 0x09:
      return "signed bytes";
    case 0x0b:
      return "16-bit integers";
    case 0x0c:
      return "32-bit integers";
    case 0x0d:
      return "fp32 numbers";
    case 0x0e:
      return "fp64 numbers";
    default:
      return "elements of an unknown type";
  }
}

// Checks the first four bytes; returns the number of dimensions.
std::size_t dimensions_of(std::span<const std::uint8_t> magic, const std::string& path) {
  ISOBAR_CHECK(magic.size() == kMagicBytes && magic[0] == 0 && magic[1] == 0, path,
               " is not an IDX file: it does not begin with two zero bytes, a type and a number of dimensions");
  ISOBAR_CHECK(magic[2] == kUnsignedByte, path, " holds ", type_name(magic[2]), " (type ", hexadecimal(magic[2]),
               "); expected unsigned bytes (type ", hexadecimal(kUnsignedByte), ")");
  ISOBAR_CHECK(magic[3] > 0, path, " is damaged: its IDX header gives no dimensions");
  return magic[3];
}

std::vector<std::int64_t> shape_of(std::span<const std::uint8_t> sizes) {
  std::vector<std::int64_t> shape;
  for (std::size_t at = 0; at < sizes.size(); at += kSizeBytes) {
    std::int64_t size = 0;
    for (const std::uint8_t byte : sizes.subspan(at, kSizeBytes)) size = size << 8 | byte;
    shape.push_back(size);
  }
  return shape;
}

}  // namespace

IdxArray read_idx(const std::string& path) {
  const std::string contents = read_file(path);
  const std::size_t dimensions = dimensions_of(first_bytes(contents, kMagicBytes, path), path);
  const std::size_t header_bytes = kMagicBytes + kSizeBytes * dimensions;
  const std::vector<std::uint8_t> header = first_bytes(contents, header_bytes, path);
  ISOBAR_CHECK(header.size() == header_bytes, path, " is truncated: it ends within its IDX header");

  IdxArray array{.shape = shape_of(std::span(header).subspan(kMagicBytes)), .values = {}};
  const auto elements = static_cast<std::size_t>(checked_product(array.shape, path));
  ISOBAR_CHECK(elements > 0, path, " holds nothing: its IDX header gives the shape ", to_string(array.shape));
  ISOBAR_CHECK(std::min(elements, most_held_by(contents)) <= machine_memory_bytes(), path,
               ": its IDX header gives the shape ", to_string(array.shape), ", more than the memory of this machine");
  std::vector<std::uint8_t> bytes = first_bytes(contents, header_bytes + elements + 1, path);
  const std::size_t held = bytes.size() - header_bytes;
  ISOBAR_CHECK(held >= elements, path, " is truncated: its shape ", to_string(array.shape), " takes ", elements,
               " bytes, but it holds ", held, " of them");
  ISOBAR_CHECK(held == elements, path, " is damaged: bytes follow the ", elements, " of its shape ",
               to_string(array.shape));
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header_bytes));
  array.values = std::move(bytes);
  return array;
}

}  // namespace isobar
