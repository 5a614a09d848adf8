// The one reader of JSON, for configs, run folders, checkpoints and the headers of weights.
//
// Every Error names the file (or flag) and what to correct: line and column if the text is not JSON, and the key at
// fault. Errors beyond the grammar: a key twice in an object, numbers too large for fp64, and values nested deeper than
// kMaxJsonDepth, because the library copies, writes and compares values by recursion.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace isobar {

inline constexpr int kMaxJsonDepth = 64;

enum class JsonComments : bool { refused, allowed };  // of the forms // and /* */

// Json is nlohmann::json or nlohmann::ordered_json. `where` is the beginning of an Error's sentence:
// "configs/vit.json".
template <class Json>
Json parse_json(std::string_view text, const std::string& where, JsonComments comments = JsonComments::refused);

// The same for a file, which is read whole; Error if it cannot be read, or has more than `max_bytes`.
template <class Json>
Json read_json(const std::filesystem::path& file, JsonComments comments = JsonComments::refused,
               std::size_t max_bytes = std::size_t{64} << 20);

// The same, but nothing if the text is not JSON by its grammar.
template <class Json>
std::optional<Json> parse_json_if_valid(std::string_view text, const std::string& where);

bool is_utf8(const std::string& text);  // other text can be written to no JSON file

// A value as text for a sentence: one line, shortened if it is long.
std::string shown(const nlohmann::json& value);
std::string shown(const nlohmann::ordered_json& value);
// A name from a file in double quotes, with its special characters escaped.
std::string in_quotes(const std::string& name);

}  // namespace isobar
