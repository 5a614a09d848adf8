#include "data/files/hdf5_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar::hdf5 {
namespace {

constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 28;

}  // namespace

std::vector<std::string> read_text(const std::string& where, hid_t object, hid_t type, std::size_t count,
                                   herr_t (*read)(hid_t object, hid_t type, void* buffer)) {
  std::vector<std::string> result;
  if (H5Tis_variable_str(type) > 0) {
    const Handle memory(H5Tcopy(type), H5Tclose);
    std::vector<char*> pointers(count, nullptr);
    ISOBAR_CHECK(read(object, memory.get(), pointers.data()) >= 0, where, ": its text cannot be read");
    for (char* pointer : pointers) {
      result.emplace_back(pointer ? pointer : "");
      if (pointer) H5free_memory(pointer);
    }
    return result;
  }
  const std::size_t width = H5Tget_size(type);
  const auto bytes = product_of(std::array{static_cast<std::int64_t>(count), static_cast<std::int64_t>(width)});
  ISOBAR_CHECK(bytes && *bytes <= kMaxTextBytes, where, ": ", count, " texts of ", width, " bytes are too many");
  std::string buffer(static_cast<std::size_t>(*bytes), '\0');
  ISOBAR_CHECK(read(object, type, buffer.data()) >= 0, where, ": its text cannot be read");
  for (std::size_t i = 0; i < count; ++i) {
    std::string entry = buffer.substr(i * width, width);
    entry = entry.substr(0, entry.find('\0'));
    entry.erase(entry.find_last_not_of(' ') + 1);
    result.push_back(std::move(entry));
  }
  return result;
}

TextTable::TextTable(std::span<const std::string> values) {
  for (const std::string& value : values) width = std::max(width, value.size());
  for (std::string value : values) {
    value.resize(width, '\0');
    bytes += value;
  }
}

Handle text_type(std::size_t width) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), width);
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  return type;
}

}  // namespace isobar::hdf5
