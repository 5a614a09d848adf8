// The JSON of Zarr's metadata. For data/files/zarr*.cc only, since this includes the JSON library's header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/zarr.h"

namespace isobar::zarr {

using Json = nlohmann::json;

// Like JSON, but numbers may be NaN, Infinity and -Infinity, as Python writes them; they become these words as texts.
Json parse_metadata(std::string_view text, const std::string& where);
Json read_metadata(const std::filesystem::path& file);

// Members of an object of a file of metadata. `where`, the file, begins every Error.
const Json* find(const Json& object, const char* key);  // null: missing, or a null
const Json& member(const Json& object, const char* key, const std::string& where);
std::string text_member(const Json& object, const char* key, const std::string& where);
// Extents of at least `least`; at most 64 of them.
std::vector<std::int64_t> extents_member(const Json& object, const char* key, std::int64_t least,
                                         const std::string& where);
// The extents of chunks, as many as the array has axes.
std::vector<std::int64_t> chunk_member(const Json& object, const char* key, const std::vector<std::int64_t>& shape,
                                       const std::string& where);

// The attributes that are texts, lists of texts, or numbers.
Attributes attributes_of(const Json& object);
// A number, or NaN and infinities as words; nothing where it is something else.
std::optional<double> number_of(const Json& value);

// What isobar says of an array with a codec that it does not know.
std::string unknown_codec(const std::string& name);
// Sets what one of Zarr's codecs without meaning for the numbers does (codecs.h); `options` are those of the codec.
// Returns whether it is one of them.
bool add_codec(const std::string& name, const Json& options, std::vector<Codec>& codecs, const std::string& where);
// "16-bit integer"
std::string name_of_numbers(const NumberFormat& format);

// An array by its metadata. `where`: the file they are from. zattrs may be null.
Array array_of_version_2(const Json& zarray, const Json* zattrs, const std::string& where);
Array array_of_version_3(const Json& metadata, const std::string& where);

}  // namespace isobar::zarr
