#include "data/text/gpt2_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "data/text/utf8.h"
#include "engine/files/json.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;

bool is_written_as_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// The character that stands for each byte in both files.
std::array<char32_t, 256> characters_of_bytes() {
  std::array<char32_t, 256> characters;
  char32_t other = 256;
  for (int byte = 0; byte < 256; ++byte)
    characters[static_cast<std::size_t>(byte)] = is_written_as_itself(byte) ? static_cast<char32_t>(byte) : other++;
  return characters;
}

// The bytes that a token's characters stand for; none if one of them stands for no byte.
std::optional<std::string> bytes_of_token(const std::string& token) {
  static const std::unordered_map<char32_t, char> bytes = [] {
    std::unordered_map<char32_t, char> all;
    const std::array<char32_t, 256> characters = characters_of_bytes();
    for (std::size_t byte = 0; byte < 256; ++byte) all.emplace(characters[byte], static_cast<char>(byte));
    return all;
  }();
  std::string found;
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint next = code_point_at(token, at);
    const auto byte = bytes.find(next.value);
    if (next.bytes == 0 || byte == bytes.end()) return std::nullopt;
    found += byte->second;
    at += next.bytes;
  }
  return found;
}

using Ids = std::unordered_map<std::string, std::int32_t>;  // by the token as the file writes it

// The names of tokens by their ids, which must be 0 to n - 1, each once.
std::vector<std::string> names_by_id(const nlohmann::json& vocabulary, const std::string& file) {
  ISOBAR_CHECK(vocabulary.is_object() && !vocabulary.empty(), file, " is not a vocabulary: expected {TOKEN: ID, ...}");
  std::vector<std::string> names(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) {
    ISOBAR_CHECK(id.is_number_integer(), file, ": token ", in_quotes(token), " has ", shown(id), ", which is no id");
    const bool is_in_range = id.is_number_unsigned() && id.get<std::uint64_t>() < names.size();
    ISOBAR_CHECK(is_in_range, file, ": token ", in_quotes(token), " has id ", shown(id), "; ", names.size(),
                 " tokens must have the ids 0 to ", names.size() - 1);
    ISOBAR_CHECK(!token.empty(), file, ": id ", shown(id), " has a token without characters");
    std::string& name = names[id.get<std::size_t>()];
    ISOBAR_CHECK(name.empty(), file, ": tokens ", in_quotes(name), " and ", in_quotes(token), " both have id ",
                 shown(id));
    name = token;
  }
  return names;
}

// The lines of a file without the newline at their ends.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

class MergeReader {
 public:
  MergeReader(const Ids& ids, std::vector<bool>& is_made, const std::string& file, const std::string& vocab_file)
      : ids_(ids), is_made_(is_made), file_(file), vocab_file_(vocab_file) {}

  std::vector<BytePairs::Rule> read() {
    const std::string text = read_file(file_, kMaxFileBytes);
    std::vector<BytePairs::Rule> rules;
    for (const std::string_view line : lines_of(text)) {
      ++line_;
      if (line_ == 1 && line.starts_with("#version")) continue;
      rules.push_back(rule_of(line));
    }
    return rules;
  }

 private:
  std::string here() const { return concat(file_, ", line ", line_, ": "); }

  std::int32_t id_of(const std::string& token, const char* what) const {
    const auto id = ids_.find(token);
    ISOBAR_CHECK(id != ids_.end(), here(), what, in_quotes(token), " is not a token of ", vocab_file_);
    return id->second;
  }

  // A part must exist when its rule comes: else the rule can never be used.
  std::int32_t part(const std::string& token) const {
    const std::int32_t id = id_of(token, "");
    ISOBAR_CHECK(is_made_[static_cast<std::size_t>(id)], here(), in_quotes(token),
                 " is neither a byte nor made by a line above, so this line leads nowhere");
    return id;
  }

  BytePairs::Rule rule_of(std::string_view line) {
    const std::size_t space = line.find(' ');
    const bool is_pair = space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
                         line.find(' ', space + 1) == std::string_view::npos;
    ISOBAR_CHECK(is_pair, here(), "expected two tokens with one space between them");
    const std::string left(line.substr(0, space)), right(line.substr(space + 1));
    const BytePairs::Rule rule{.left = part(left), .right = part(right), .result = id_of(left + right, "the result ")};
    const auto pair = std::pair(rule.left, rule.right);
    ISOBAR_CHECK(pairs_.insert(pair).second, here(), in_quotes(left), " and ", in_quotes(right),
                 " are joined by a line above");
    is_made_[static_cast<std::size_t>(rule.result)] = true;
    return rule;
  }

  const Ids& ids_;
  std::vector<bool>& is_made_;
  const std::string &file_, &vocab_file_;
  std::set<std::pair<std::int32_t, std::int32_t>> pairs_;
  std::int64_t line_ = 0;
};

}  // namespace

Gpt2Files read_gpt2_files(const std::string& vocab_file, const std::string& merge_file) {
  const auto vocabulary = read_json<nlohmann::json>(vocab_file, JsonComments::refused, kMaxFileBytes);
  const std::vector<std::string> names = names_by_id(vocabulary, vocab_file);
  Gpt2Files files;
  Ids ids;
  for (const std::string& name : names) {
    ids.emplace(name, static_cast<std::int32_t>(files.tokens.size()));
    files.tokens.push_back(bytes_of_token(name).value_or(name));
  }
  files.is_made.resize(names.size());
  const std::array<char32_t, 256> characters = characters_of_bytes();
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string name;
    append_utf8(name, characters[byte]);
    const auto id = ids.find(name);
    ISOBAR_CHECK(id != ids.end(), vocab_file, ": byte ", byte, " has no token: ", in_quotes(name), " is missing");
    files.byte_ids[byte] = id->second;
    files.is_made[static_cast<std::size_t>(id->second)] = true;
  }
  files.rules = MergeReader(ids, files.is_made, merge_file, vocab_file).read();
  return files;
}

}  // namespace isobar
