#include "data/files/zarr_metadata.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>

#include "engine/files/json.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"

namespace isobar::zarr {
namespace {

constexpr std::size_t kMaxMetadata = std::size_t{64} << 20;  // bytes of a file
constexpr std::size_t kMaxAxes = 64;                         // of an array; NumPy has as many

constexpr std::array<std::string_view, 3> kWords = {"-Infinity", "Infinity", "NaN"};

// Puts quotes around Python's words for numbers that JSON does not have.
std::string quote_words(std::string_view text) {
  std::string quoted;
  quoted.reserve(text.size());
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_text && text[i] == '\\' && i + 1 < text.size()) {
      quoted.append(text.substr(i++, 2));
      continue;
    }
    if (text[i] == '"') in_text = !in_text;
    const auto word = std::ranges::find_if(kWords, [&](auto known) { return text.substr(i).starts_with(known); });
    if (in_text || word == kWords.end()) {
      quoted += text[i];
      continue;
    }
    quoted.append("\"").append(*word).append("\"");
    i += word->size() - 1;
  }
  return quoted;
}

std::optional<std::vector<double>> numbers_of(const Json& list) {
  std::vector<double> numbers;
  for (const Json& entry : list) {
    const std::optional<double> number = number_of(entry);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

std::optional<std::vector<std::string>> texts_of(const Json& list) {
  std::vector<std::string> texts;
  for (const Json& entry : list) {
    if (!entry.is_string()) return std::nullopt;
    texts.push_back(entry.get<std::string>());
  }
  return texts;
}

}  // namespace

Json parse_metadata(std::string_view text, const std::string& where) {
  Json parsed = parse_json<Json>(quote_words(text), where);
  ISOBAR_CHECK(parsed.is_object(), where, " is no JSON object, as Zarr's metadata are");
  return parsed;
}

Json read_metadata(const std::filesystem::path& file) {
  return parse_metadata(read_file(file, kMaxMetadata), file.string());
}

const Json* find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const Json& member(const Json& object, const char* key, const std::string& where) {
  const Json* found = find(object, key);
  ISOBAR_CHECK(found != nullptr, where, " is damaged: it has no '", key, "'");
  return *found;
}

std::string text_member(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  ISOBAR_CHECK(value.is_string(), where, " is damaged: its '", key, "' is ", shown(value), ", and should be a text");
  return value.get<std::string>();
}

std::vector<std::int64_t> extents_member(const Json& object, const char* key, std::int64_t least,
                                         const std::string& where) {
  const Json& list = member(object, key, where);
  const auto is_extent = [least](const Json& value) {
    if (!value.is_number_integer()) return false;
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) return false;
    return value.get<std::int64_t>() >= least;
  };
  ISOBAR_CHECK(list.is_array() && list.size() <= kMaxAxes && std::ranges::all_of(list, is_extent), where,
               " is damaged: its '", key, "' is ", shown(list), ", and should be at most ", kMaxAxes,
               " whole numbers from ", least, " on");
  return list.get<std::vector<std::int64_t>>();
}

std::vector<std::int64_t> chunk_member(const Json& object, const char* key, const std::vector<std::int64_t>& shape,
                                       const std::string& where) {
  std::vector<std::int64_t> chunk = extents_member(object, key, 0, where);
  bool fits = chunk.size() == shape.size();
  for (std::size_t d = 0; fits && d < chunk.size(); ++d) {
    fits = chunk[d] > 0 || shape[d] == 0;
    chunk[d] = std::max<std::int64_t>(chunk[d], 1);  // some programs write 0 where an array is empty
  }
  ISOBAR_CHECK(fits, where, " is damaged: its '", key, "' is ", shown(member(object, key, where)), ", and should be ",
               shape.size(), " whole numbers from 1 on");
  return chunk;
}

std::optional<double> number_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const std::string& word = value.get_ref<const std::string&>();
  using Limits = std::numeric_limits<double>;
  if (word == "NaN") return Limits::quiet_NaN();
  if (word == "Infinity") return Limits::infinity();
  if (word == "-Infinity") return -Limits::infinity();
  return std::nullopt;
}

Attributes attributes_of(const Json& object) {
  Attributes found;
  if (!object.is_object()) return found;
  for (const auto& [name, value] : object.items()) {
    const Json list = value.is_array() ? value : Json::array({value});
    if (const auto numbers = numbers_of(list))
      found[name].numbers = *numbers;
    else if (const auto texts = texts_of(list))
      found[name].texts = *texts;
  }
  return found;
}

std::string unknown_codec(const std::string& name) {
  return "has the codec '" + name +
         "', which isobar does not undo; it undoes zlib, gzip, zstd, lz4, blosc, crc32c, shuffle, and shards";
}

bool add_codec(const std::string& name, const Json& options, std::vector<Codec>& codecs, const std::string& where) {
  const std::optional<Codec::Kind> kind = codec_named(name);
  if (!kind) return false;
  Codec codec{.kind = *kind};
  if (const Json* element = find(options, "elementsize"); element != nullptr && *kind == Codec::Kind::shuffle) {
    ISOBAR_CHECK(element->is_number_unsigned() && element->get<std::uint64_t>() > 0, where,
                 " is damaged: the 'elementsize' of its shuffle is ", shown(*element));
    codec.element = element->get<std::size_t>();
  } else if (*kind == Codec::Kind::shuffle) {
    codec.element = 4;  // what numcodecs takes then
  }
  if (const Json* location = find(options, "location"); location != nullptr && *kind == Codec::Kind::crc32c)
    codec.checksum_first = *location == "start";
  codecs.push_back(codec);
  return true;
}

std::string name_of_numbers(const NumberFormat& format) {
  using Kind = NumberFormat::Kind;
  const char* kind = format.kind == Kind::floating         ? "float"
                     : format.kind == Kind::signed_integer ? "integer"
                                                           : "unsigned integer";
  return std::to_string(8 * format.bytes) + "-bit " + kind;
}

}  // namespace isobar::zarr
