// Zarr version 3: zarr.json.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <map>
#include <string_view>

#include "data/files/zarr_metadata.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar::zarr {
namespace {

// A named thing with options: {"name": "zstd", "configuration": {"level": 3}}, or its name alone.
struct Extension {
  std::string name;
  Json options = Json::object();
};

Extension extension_of(const Json& value, const std::string& where) {
  if (value.is_string()) return {value.get<std::string>()};
  ISOBAR_CHECK(value.is_object(), where, " is damaged: ", shown(value), " is neither a name nor an object with one");
  Extension found{text_member(value, "name", where)};
  if (const Json* options = find(value, "configuration")) found.options = *options;
  return found;
}

std::optional<NumberFormat> format_named(const std::string& name) {
  using Kind = NumberFormat::Kind;
  static const std::map<std::string, NumberFormat> known = {
      {"int8", {Kind::signed_integer, 1}},     {"int16", {Kind::signed_integer, 2}},
      {"int32", {Kind::signed_integer, 4}},    {"int64", {Kind::signed_integer, 8}},
      {"uint8", {Kind::unsigned_integer, 1}},  {"uint16", {Kind::unsigned_integer, 2}},
      {"uint32", {Kind::unsigned_integer, 4}}, {"uint64", {Kind::unsigned_integer, 8}},
      {"float16", {Kind::floating, 2}},        {"float32", {Kind::floating, 4}},
      {"float64", {Kind::floating, 8}}};
  const auto found = known.find(name);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

// What turns a chunk's numbers into bytes.
struct Pipeline {
  std::vector<std::size_t> order;
  std::endian byte_order = std::endian::little;
  std::vector<Codec> codecs;
  const Json* shards = nullptr;  // the options of sharding_indexed
  std::string refusal;
};

void refuse(Pipeline& pipeline, const std::string& why) {
  if (pipeline.refusal.empty()) pipeline.refusal = why;
}

std::vector<std::size_t> order_of(const Json& options, std::size_t rank, const std::string& where) {
  std::vector<std::size_t> order;
  for (const std::int64_t axis : extents_member(options, "order", 0, where))
    order.push_back(static_cast<std::size_t>(axis));
  std::vector<std::size_t> sorted = order;
  std::ranges::sort(sorted);
  bool is_permutation = order.size() == rank;
  for (std::size_t d = 0; d < sorted.size(); ++d) is_permutation = is_permutation && sorted[d] == d;
  ISOBAR_CHECK(is_permutation, where, " is damaged: the 'order' of its transpose is ",
               shown(member(options, "order", where)), ", and should name ", rank, " axes once each");
  return order;
}

// Of two transposes, one after another.
std::vector<std::size_t> both_orders(const std::vector<std::size_t>& first, const std::vector<std::size_t>& second) {
  if (first.empty()) return second;
  std::vector<std::size_t> both;
  for (const std::size_t axis : second) both.push_back(first[axis]);
  return both;
}

std::endian byte_order_of(const Json& options, const std::string& where) {
  const Json* order = find(options, "endian");
  if (order == nullptr || *order == "little") return std::endian::little;
  ISOBAR_CHECK(*order == "big", where, " is damaged: its bytes have the 'endian' ", shown(*order));
  return std::endian::big;
}

// Codecs of numcodecs are named by where they are from.
std::string without_origin(const std::string& name) {
  constexpr std::string_view kOrigin = "numcodecs.";
  return name.starts_with(kOrigin) ? name.substr(kOrigin.size()) : name;
}

Pipeline pipeline_of(const Json& list, std::size_t rank, const std::string& where) {
  ISOBAR_CHECK(list.is_array(), where, " is damaged: its codecs are ", shown(list), ", and should be a list");
  Pipeline found;
  bool has_bytes = false;
  for (const Json& entry : list) {
    const Extension codec = extension_of(entry, where);
    if (codec.name == "transpose" && !has_bytes) {
      found.order = both_orders(found.order, order_of(codec.options, rank, where));
    } else if (codec.name == "bytes" && !has_bytes) {
      found.byte_order = byte_order_of(codec.options, where);
      has_bytes = true;
    } else if (codec.name == "sharding_indexed" && !has_bytes) {
      ISOBAR_CHECK(entry.is_object(), where, " is damaged: its shards have no 'configuration'");
      found.shards = &member(entry, "configuration", where);
      has_bytes = true;
    } else if (!has_bytes || !add_codec(without_origin(codec.name), codec.options, found.codecs, where)) {
      refuse(found, unknown_codec(codec.name));
    }
  }
  ISOBAR_CHECK(has_bytes || !found.refusal.empty(), where,
               " is damaged: none of its codecs turns numbers into bytes (bytes, sharding_indexed)");
  return found;
}

// An index is pairs of little-endian numbers, and isobar reads no other.
bool is_plain_index(const Pipeline& index) {
  const auto is_checksum = [](const Codec& codec) {
    return codec.kind == Codec::Kind::crc32c && !codec.checksum_first;
  };
  return index.refusal.empty() && index.order.empty() && index.byte_order == std::endian::little &&
         index.shards == nullptr && index.codecs.size() <= 1 && std::ranges::all_of(index.codecs, is_checksum);
}

// The array's chunks are those within the shards.
Pipeline open_shards(const Pipeline& outer, Array& array, const std::string& where) {
  const Json& options = *outer.shards;
  const std::size_t rank = array.info.shape.size();
  Shards shards{.shape = array.chunk};
  array.chunk = extents_member(options, "chunk_shape", 1, where);
  bool divides = array.chunk.size() == rank;
  for (std::size_t d = 0; divides && d < rank; ++d) divides = shards.shape[d] % array.chunk[d] == 0;
  ISOBAR_CHECK(divides, where, " is damaged: the 'chunk_shape' ", shown(member(options, "chunk_shape", where)),
               " does not divide its shards");
  if (const Json* location = find(options, "index_location")) {
    ISOBAR_CHECK(*location == "start" || *location == "end", where, " is damaged: its 'index_location' is ",
                 shown(*location));
    shards.index_first = *location == "start";
  }
  const Pipeline index = pipeline_of(member(options, "index_codecs", where), rank + 1, where);
  Pipeline inner = pipeline_of(member(options, "codecs", where), rank, where);
  if (!outer.order.empty() || !outer.codecs.empty() || inner.shards != nullptr || !is_plain_index(index))
    refuse(inner, "has shards within other codecs, or with an index that is compressed, which isobar does not undo");
  shards.index_has_checksum = !index.codecs.empty();
  array.shards = std::move(shards);
  return inner;
}

void set_codecs(const Json& metadata, Array& array, const std::string& where) {
  Pipeline pipeline = pipeline_of(member(metadata, "codecs", where), array.info.shape.size(), where);
  if (pipeline.refusal.empty() && pipeline.shards != nullptr) pipeline = open_shards(pipeline, array, where);
  array.codecs = pipeline.codecs;
  if (!std::ranges::is_sorted(pipeline.order)) array.order = pipeline.order;
  if (array.refusal.empty()) array.refusal = pipeline.refusal;
  if (array.info.format) array.info.format->order = pipeline.byte_order;
}

void set_chunks(const Json& metadata, Array& array, const std::string& where) {
  const Extension grid = extension_of(member(metadata, "chunk_grid", where), where);
  if (grid.name == "regular")
    array.chunk = chunk_member(grid.options, "chunk_shape", array.info.shape, where);
  else
    array.refusal = "has chunks in a grid of the kind '" + grid.name + "'; isobar reads regular ones";
  const Extension keys = extension_of(member(metadata, "chunk_key_encoding", where), where);
  if (keys.name != "default" && keys.name != "v2")
    array.refusal = "names its chunks by '" + keys.name + "', which isobar does not know";
  array.has_prefix = keys.name == "default";
  array.separator = array.has_prefix ? "/" : ".";
  if (const Json* separator = find(keys.options, "separator")) {
    ISOBAR_CHECK(*separator == "." || *separator == "/", where, " is damaged: its 'separator' is ", shown(*separator));
    array.separator = separator->get<std::string>();
  }
}

// "0x7fc00000": the bytes of a float, the highest first.
std::optional<double> number_of_bits(const Json& value, const NumberFormat& format) {
  if (!value.is_string() || format.kind != NumberFormat::Kind::floating) return std::nullopt;
  const std::string& text = value.get_ref<const std::string&>();
  if (!text.starts_with("0x") || text.size() != 2 + 2 * format.bytes) return std::nullopt;
  std::uint64_t bits = 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  const NumberFormat in_memory{.kind = format.kind, .bytes = format.bytes, .order = std::endian::little};
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(bits >> (8 * i));
  double number = 0;
  convert(in_memory, bytes.data(), 1, DType::fp64, &number);
  return number;
}

void set_fill_number(const Json& metadata, Array& array, const std::string& where) {
  if (!array.info.format) return;
  const Json& fill = member(metadata, "fill_value", where);
  array.fill_value = number_of(fill);
  if (!array.fill_value) array.fill_value = number_of_bits(fill, *array.info.format);
  ISOBAR_CHECK(array.fill_value, where, " is damaged: its 'fill_value' is ", shown(fill), ", which is no number");
}

void set_dimension_names(const Json& metadata, Array& array) {
  const Json* names = find(metadata, "dimension_names");
  if (names == nullptr || !names->is_array() || names->size() != array.info.shape.size()) return;
  for (const Json& name : *names) array.info.dimensions.push_back(name.is_string() ? name.get<std::string>() : "");
  const bool has_none = std::ranges::all_of(array.info.dimensions, [](const std::string& n) { return n.empty(); });
  if (has_none) array.info.dimensions.clear();
}

// Members that this reader does not know change the meaning of the others, unless they say that they do not.
void check_members(const Json& metadata, Array& array) {
  constexpr std::array<std::string_view, 12> kKnown = {
      "zarr_format", "node_type", "shape",      "data_type",       "chunk_grid",           "chunk_key_encoding",
      "fill_value",  "codecs",    "attributes", "dimension_names", "storage_transformers", "consolidated_metadata"};
  for (const auto& [name, value] : metadata.items()) {
    const Json* must = find(value, "must_understand");
    if (std::ranges::find(kKnown, name) == kKnown.end() && (must == nullptr || *must != false))
      array.refusal = "has the extension '" + name + "', which isobar does not know";
  }
  if (const Json* transformers = find(metadata, "storage_transformers"); transformers && !transformers->empty())
    array.refusal = "has storage transformers, which isobar does not know: " + shown(*transformers);
}

}  // namespace

Array array_of_version_3(const Json& metadata, const std::string& where) {
  Array array;
  array.info.shape = extents_member(metadata, "shape", 0, where);
  const Extension type = extension_of(member(metadata, "data_type", where), where);
  array.info.format = format_named(type.name);
  array.info.type_name = array.info.format ? name_of_numbers(*array.info.format) : "values of type " + type.name;
  check_members(metadata, array);
  set_chunks(metadata, array, where);
  if (array.refusal.empty()) set_codecs(metadata, array, where);
  set_fill_number(metadata, array, where);
  if (const Json* attributes = find(metadata, "attributes")) array.info.attributes = attributes_of(*attributes);
  set_dimension_names(metadata, array);
  return array;
}

}  // namespace isobar::zarr
