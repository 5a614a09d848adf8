// Zarr version 2: .zarray and .zattrs.
#include <algorithm>
#include <bit>

#include "data/files/zarr_metadata.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar::zarr {
namespace {

// xarray's name of the axes' names.
constexpr const char* kDimensions = "_ARRAY_DIMENSIONS";

// Of NumPy's "<i2", ">f8", "|u1".
std::optional<NumberFormat> format_of_numpy(const std::string& type) {
  using Kind = NumberFormat::Kind;
  if (type.size() != 3) return std::nullopt;
  const char order = type[0], kind = type[1];
  NumberFormat format{.bytes = static_cast<std::size_t>(type[2] - '0')};
  const bool is_integer = kind == 'i' || kind == 'u';
  const std::size_t bytes = format.bytes;
  const bool known_width = bytes == 2 || bytes == 4 || bytes == 8 || (bytes == 1 && is_integer);
  const bool known_order = order == '<' || order == '>' || (order == '|' && bytes == 1);
  if (!known_width || !known_order || (!is_integer && kind != 'f')) return std::nullopt;
  format.kind = kind == 'f' ? Kind::floating : kind == 'i' ? Kind::signed_integer : Kind::unsigned_integer;
  format.order = order == '>' ? std::endian::big : std::endian::little;
  return format;
}

void set_type(const Json& zarray, Array& array, const std::string& where) {
  const Json& type = member(zarray, "dtype", where);
  if (type.is_string()) array.info.format = format_of_numpy(type.get<std::string>());
  array.info.type_name = array.info.format
                             ? name_of_numbers(*array.info.format)
                             : "values of type " + (type.is_string() ? type.get<std::string>() : shown(type));
}

void set_order(const Json& zarray, Array& array, const std::string& where) {
  const std::string order = text_member(zarray, "order", where);
  ISOBAR_CHECK(order == "C" || order == "F", where, " is damaged: its 'order' is '", order, "', not C or F");
  const std::size_t rank = array.info.shape.size();
  for (std::size_t d = 0; order == "F" && d < rank; ++d) array.order.push_back(rank - 1 - d);
}

void add_codec_of_version_2(const Json& codec, Array& array, const std::string& where) {
  const std::string id = text_member(codec, "id", where);
  if (!add_codec(id, codec, array.codecs, where) && array.refusal.empty()) array.refusal = unknown_codec(id);
}

void set_fill_value(const Json& zarray, Array& array, const std::string& where) {
  const Json* fill = find(zarray, "fill_value");
  if (fill == nullptr || !array.info.format) return;
  array.fill_value = number_of(*fill);
  ISOBAR_CHECK(array.fill_value, where, " is damaged: its 'fill_value' is ", shown(*fill), ", which is no number");
}

void set_dimensions(const Json& zattrs, Array& array) {
  array.info.attributes = attributes_of(zattrs);
  const auto found = array.info.attributes.find(kDimensions);
  if (found == array.info.attributes.end()) return;
  if (found->second.texts.size() == array.info.shape.size()) array.info.dimensions = found->second.texts;
  array.info.attributes.erase(found);
}

}  // namespace

Array array_of_version_2(const Json& zarray, const Json* zattrs, const std::string& where) {
  const Json& version = member(zarray, "zarr_format", where);
  ISOBAR_CHECK(version == 2, where, " has 'zarr_format' ", shown(version), "; expected 2");
  Array array;
  array.info.shape = extents_member(zarray, "shape", 0, where);
  array.chunk = chunk_member(zarray, "chunks", array.info.shape, where);
  set_type(zarray, array, where);
  set_order(zarray, array, where);
  if (const Json* filters = find(zarray, "filters")) {
    ISOBAR_CHECK(filters->is_array(), where, " is damaged: its 'filters' are ", shown(*filters));
    for (const Json& filter : *filters) add_codec_of_version_2(filter, array, where);
  }
  if (const Json* compressor = find(zarray, "compressor")) add_codec_of_version_2(*compressor, array, where);
  set_fill_value(zarray, array, where);
  if (const Json* separator = find(zarray, "dimension_separator")) {
    ISOBAR_CHECK(*separator == "." || *separator == "/", where, " is damaged: its 'dimension_separator' is ",
                 shown(*separator));
    array.separator = separator->get<std::string>();
  }
  if (zattrs != nullptr) set_dimensions(*zattrs, array);
  return array;
}

}  // namespace isobar::zarr
