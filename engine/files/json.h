// The one reader of JSON, for configs, run folders, checkpoints and the headers of weights.
//
// Every Error names the file (or flag) and tells what to mend: line and column of what is no JSON, and the key at
// fault. Refused beside what the grammar refuses: a key that an object holds twice, numbers beyond fp64, and values
// nested deeper than kDeepestJson, because the library copies, writes and compares values by recursion.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace isobar {

inline constexpr int kDeepestJson = 64;

enum class JsonComments : bool { refused, allowed };  // of the forms // and /* */

// Json is nlohmann::json or nlohmann::ordered_json. `where` begins the sentence of an Error: "configs/vit.json".
template <class Json>
Json parse_json(std::string_view text, const std::string& where, JsonComments comments = JsonComments::refused);

// The same of a file that is read whole; Error where it cannot be, or has more than `most_bytes`.
template <class Json>
Json read_json(const std::filesystem::path& file, JsonComments comments = JsonComments::refused,
               std::size_t most_bytes = std::size_t{64} << 20);

// The same, but nothing where the text is no JSON by its grammar.
template <class Json>
std::optional<Json> parse_json_if_valid(std::string_view text, const std::string& where);

bool is_utf8(const std::string& text);  // what is not can be written to no JSON file

// A value as text for a sentence: one line, cut where it is long.
std::string shown(const nlohmann::json& value);
std::string shown(const nlohmann::ordered_json& value);
// A name out of a file in double quotes, its special characters escaped.
std::string in_quotes(const std::string& name);

}  // namespace isobar
