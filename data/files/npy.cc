#include "data/files/npy.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <optional>
#include <string_view>

#include "engine/files/atomic_file.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;  // NumPy pads the header so that the data begins at a multiple of this

static_assert(std::endian::native == std::endian::little, "the files hold little-endian numbers");

// What follows 'key': in the header's Python dictionary, up to the end of the text.
std::optional<std::string_view> after_key(std::string_view header, const std::string& key) {
  const std::size_t at = header.find("'" + key + "'");
  if (at == header.npos) return std::nullopt;
  const std::size_t colon = header.find(':', at);
  if (colon == header.npos) return std::nullopt;
  const std::size_t value = header.find_first_not_of(' ', colon + 1);
  if (value == header.npos) return std::nullopt;
  return header.substr(value);
}

// "(1, 20, 1, 1)" or "(5,)" or "()".
std::optional<std::vector<std::int64_t>> parse_shape(std::string_view text) {
  if (text.empty() || text[0] != '(' || text.find(')') == text.npos) return std::nullopt;
  std::vector<std::int64_t> shape;
  std::int64_t extent = -1;
  for (char c : text.substr(1, text.find(')'))) {
    if (c >= '0' && c <= '9') {
      extent = (extent < 0 ? 0 : extent) * 10 + (c - '0');
      if (extent > (std::int64_t{1} << 48)) return std::nullopt;
    } else if (c == ',' || c == ')') {
      if (extent >= 0) shape.push_back(extent);
      extent = -1;
    } else if (c != ' ' && c != 'L') {
      return std::nullopt;
    }
  }
  return shape;
}

// What the header says.
struct Header {
  std::vector<std::int64_t> shape;
  NumberFormat format;
  std::size_t data_at = 0;
};

// start: the first bytes of the file, with all of the header; size: bytes of the file.
Header header_of(std::string_view start, std::size_t size, const std::string& path) {
  ISOBAR_CHECK(start.size() >= 12 && start.starts_with(kMagic), path, " is not a .npy file");
  const int version = start[6];
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::size_t header_length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i)
    header_length |= std::size_t{static_cast<unsigned char>(start[8 + i])} << (8 * i);
  const std::size_t data_at = 8 + length_bytes + header_length;
  ISOBAR_CHECK(version >= 1 && version <= 3 && data_at <= start.size(), path, " has a damaged .npy header");
  const std::string_view header = start.substr(8 + length_bytes, header_length);

  const auto descr = after_key(header, "descr"), order = after_key(header, "fortran_order"),
             shape_at = after_key(header, "shape");
  const auto shape = shape_at ? parse_shape(*shape_at) : std::nullopt;
  ISOBAR_CHECK(descr && order && shape, path, " has a damaged .npy header");
  const bool is_u8 = descr->starts_with("'|u1'"), is_fp32 = descr->starts_with("'<f4'");
  ISOBAR_CHECK(is_u8 || is_fp32 || descr->starts_with("'<f8'"), path, " holds elements of type ",
               descr->substr(0, descr->find(',')), "; expected '<f4' or '<f8' (fp32 or fp64), or '|u1'");
  ISOBAR_CHECK(order->starts_with("False"), path, " is stored in Fortran order; expected C order");

  const NumberFormat format{is_u8 ? NumberFormat::Kind::unsigned_integer : NumberFormat::Kind::floating,
                            is_u8     ? std::size_t{1}
                            : is_fp32 ? std::size_t{4}
                                      : std::size_t{8}};
  const Header result{*shape, format, data_at};
  const std::size_t held = size - data_at;
  const auto count = static_cast<std::size_t>(checked_product(*shape, path));
  ISOBAR_CHECK(held % result.format.bytes == 0 && held / result.format.bytes == count, path,
               " is truncated or damaged: ", shape_text(*shape), " numbers of ", result.format.bytes,
               " bytes each, but the file has ", held, " bytes for them");
  return result;
}

void write(const std::string& path, std::span<const std::int64_t> shape, std::string_view descr,
           std::span<const std::byte> data) {
  std::string header =
      "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': " + shape_text(shape) + ", }";
  const std::size_t prefix = kMagic.size() + 4;  // and version, and the header's length
  const std::size_t unpadded = prefix + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::string head(kMagic);
  head += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  AtomicFile file(path);
  file.write(head + header);
  file.write(data);
  file.commit();
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string result = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) result += (i ? ", " : "") + std::to_string(shape[i]);
  return result + (shape.size() == 1 ? ",)" : ")");
}

NpyArray read_npy(const std::string& path) {
  const std::string file = read_file(path);
  const Header header = header_of(file, file.size(), path);
  NpyArray array{header.shape, std::vector<double>(static_cast<std::size_t>(checked_product(header.shape, path)))};
  convert(header.format, std::as_bytes(std::span(file)).subspan(header.data_at).data(),
          static_cast<std::int64_t>(array.values.size()), DType::fp64, array.values.data());
  return array;
}

NpyFile::NpyFile(const std::string& path) : file_(path) {
  constexpr std::size_t kMaxHeader = 1 << 16;  // far more than any program writes
  std::string start(std::min(file_.size(), kMaxHeader), '\0');
  file_.read(0, std::as_writable_bytes(std::span(start)));
  const Header header = header_of(start, file_.size(), path);
  shape_ = header.shape;
  format_ = header.format;
  data_at_ = header.data_at;
}

void NpyFile::read(std::int64_t first, std::int64_t count, float* out) const {
  const auto bytes = static_cast<std::size_t>(count) * format_.bytes;
  const std::uint64_t offset = data_at_ + static_cast<std::uint64_t>(first) * format_.bytes;
  if (same_bytes(format_, DType::fp32)) {
    file_.read(offset, std::as_writable_bytes(std::span(out, static_cast<std::size_t>(count))));
    return;
  }
  std::vector<std::byte> stored(bytes);
  file_.read(offset, stored);
  convert(format_, stored.data(), count, DType::fp32, out);
}

void write_npy(const std::string& path, std::span<const std::int64_t> shape, std::span<const float> values) {
  write(path, shape, "<f4", std::as_bytes(values));
}

void write_npy(const std::string& path, std::span<const std::int64_t> shape, std::span<const double> values) {
  write(path, shape, "<f8", std::as_bytes(values));
}

void write_npy(const std::string& path, std::span<const std::int64_t> shape, std::span<const std::uint8_t> values) {
  write(path, shape, "|u1", std::as_bytes(values));
}

void write_npy(const std::string& path, std::span<const std::int64_t> shape, std::span<const std::int32_t> values) {
  write(path, shape, "<i4", std::as_bytes(values));
}

void write_npy(const std::string& path, std::span<const std::int64_t> shape, std::span<const std::uint32_t> values) {
  write(path, shape, "<u4", std::as_bytes(values));
}

void write_npy(const std::string& path, std::span<const std::int64_t> shape, std::span<const std::int64_t> values) {
  write(path, shape, "<i8", std::as_bytes(values));
}

}  // namespace isobar
