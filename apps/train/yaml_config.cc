#include "apps/train/yaml_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>
#include <string_view>
#include <vector>

#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "kernels/common/suggestions.h"

namespace isobar {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // size limit of the file

struct Document {
  std::filesystem::path file;
  std::string name;  // of the config

  std::string origin() const { return file.string() + " (" + name + ")"; }
};

std::string lower(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

enum class Form { text, integer, number };

// [-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)? is a number; without point and exponent it is an integer. Parsed by hand:
// std::regex recurses for every character.
Form form_of(std::string_view word) {
  const auto skip_sign = [&] {
    if (word.starts_with('-') || word.starts_with('+')) word.remove_prefix(1);
  };
  const auto skip_digits = [&] {
    const std::size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
    word.remove_prefix(digits);
    return digits;
  };
  skip_sign();
  std::size_t digits = skip_digits();
  if (word.empty()) return digits > 0 ? Form::integer : Form::text;
  if (word.starts_with('.')) {
    word.remove_prefix(1);
    digits += skip_digits();
  }
  if (digits == 0) return Form::text;
  if (word.starts_with('e') || word.starts_with('E')) {
    word.remove_prefix(1);
    skip_sign();
    if (skip_digits() == 0) return Form::text;
  }
  return word.empty() ? Form::number : Form::text;
}

json scalar(const YAML::Node& node) {
  const std::string& word = node.Scalar();
  const bool is_quoted = node.Tag() == "!";
  if (is_quoted) return word;
  if (lower(word) == "true" || lower(word) == "false") return lower(word) == "true";
  const Form form = form_of(word);
  if (form == Form::integer) {
    const char* begin = word.c_str() + (word.front() == '+');
    std::int64_t value = 0;
    if (std::from_chars(begin, word.c_str() + word.size(), value).ec == std::errc()) return value;
  }
  if (form != Form::text) return std::strtod(word.c_str(), nullptr);
  return word;
}

json value_of(const YAML::Node& node, const std::string& key, const Document& document) {
  if (node.IsNull()) return nullptr;
  if (node.IsScalar()) return scalar(node);
  ISOBAR_CHECK(node.IsSequence(), "config key ", key, " in ", document.origin(), " must be a value or a list");
  json list = json::array();
  for (const YAML::Node& item : node) {
    ISOBAR_CHECK(item.IsScalar() || item.IsNull(), "config key ", key, " in ", document.origin(),
                 " must be a list of values");
    list.push_back(item.IsNull() ? json() : scalar(item));
  }
  return list;
}

// A map within the map becomes the keys KEY.SUBKEY.
void take(const YAML::Node& node, const std::string& key, const Document& document, ConfigEntries& entries) {
  if (!node.IsMap()) {
    entries.try_emplace(key, ConfigEntry{value_of(node, key, document), document.origin()});
    return;
  }
  std::set<std::string> own;
  for (const auto& entry : node) {
    ISOBAR_CHECK(entry.first.IsScalar(), "config key ", key, " in ", document.origin(), " has a key that is no word");
    const std::string name = key + "." + entry.first.Scalar();
    ISOBAR_CHECK(own.insert(name).second, "config key ", name, " stands twice in ", document.origin());
    entries.try_emplace(name, ConfigEntry{value_of(entry.second, name, document), document.origin()});
  }
}

// The map's own keys, then those of the maps it merges, in their order: the first value of a key wins.
void collect(const YAML::Node& map, const Document& document, int& maps, ConfigEntries& entries) {
  constexpr int kMaxMaps = 200;
  ISOBAR_CHECK(++maps <= kMaxMaps, "config ", document.origin(), " merges itself, or more than ", kMaxMaps, " maps");
  ISOBAR_CHECK(map.IsMap(), "config ", document.origin(),
               " must be a map of keys and values, and so must what it merges");
  std::set<std::string> own;
  for (const auto& entry : map) {
    ISOBAR_CHECK(entry.first.IsScalar(), "config ", document.origin(), " has a key that is no word");
    const std::string& key = entry.first.Scalar();
    ISOBAR_CHECK(own.insert(key).second, "config key ", key, " stands twice in ", document.origin());
    if (key != "<<") take(entry.second, key, document, entries);
  }
  if (own.count("<<") == 0) return;
  const YAML::Node merged = map["<<"];
  if (!merged.IsSequence()) return collect(merged, document, maps, entries);
  for (const YAML::Node& parent : merged) collect(parent, document, maps, entries);
}

}  // namespace

NamedConfig load_yaml_config(const std::filesystem::path& file, const std::string& name) {
  std::error_code ignored;
  ISOBAR_CHECK(std::filesystem::is_regular_file(file, ignored), "cannot open config file ", file.string());
  const std::string contents = read_file(file, kMaxBytes);
  const Document document{file, name};
  NamedConfig config{name, {}};
  try {
    const YAML::Node root = YAML::Load(contents);
    ISOBAR_CHECK(root.IsMap(), "config file ", file.string(), " must hold configs by name");
    std::vector<std::string> names;
    YAML::Node found;
    for (const auto& entry : root) {
      names.push_back(entry.first.IsScalar() ? entry.first.Scalar() : "");
      ISOBAR_CHECK(std::count(names.begin(), names.end(), names.back()) == 1, "config ", names.back(),
                   " stands twice in ", file.string());
      if (names.back() == name) found.reset(entry.second);
    }
    ISOBAR_CHECK(std::count(names.begin(), names.end(), name) == 1, "config file ", file.string(), " holds no config '",
                 name, "'", did_you_mean(suggestion(name, names)));
    int maps = 0;
    collect(found, document, maps, config.entries);
  } catch (const YAML::Exception& error) {
    throw_error("config file ", file.string(), " is not valid YAML: ", error.what());
  }
  return config;
}

}  // namespace isobar
