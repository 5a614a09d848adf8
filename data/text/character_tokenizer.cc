#include "data/text/character_tokenizer.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/text/utf8.h"
#include "engine/files/checksum.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// "U+00E9".
std::string code_point_name(char32_t code_point) {
  char name[16];
  std::snprintf(name, sizeof name, "U+%04X", static_cast<unsigned>(code_point));
  return name;
}

}  // namespace

void CharacterTokenizer::add(char32_t character) {
  std::string bytes;
  append_utf8(bytes, character);
  ISOBAR_CHECK(ids_.emplace(character, static_cast<std::int32_t>(size())).second, name_, ": character ",
               code_point_name(character), " is there twice");
  characters_.push_back(std::move(bytes));
}

CharacterTokenizer::CharacterTokenizer(const std::filesystem::path& table) : name_(table.string()) {
  const auto file = read_json<nlohmann::json>(table);
  ISOBAR_CHECK(file.is_object() && file.size() == 1 && file.contains("characters") && file["characters"].is_string(),
               name_, " is not a table of characters: expected {\"characters\": TEXT}");
  const auto& text = file["characters"].get_ref<const std::string&>();
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint next = code_point_at(text, at);
    add(next.value);
    at += next.bytes;
  }
  ISOBAR_CHECK(size() > 0, name_, ": the table has no characters");
}

CharacterTokenizer::CharacterTokenizer(const std::set<char32_t>& characters) {
  for (const char32_t character : characters) add(character);
  ISOBAR_CHECK(size() > 0, name_, " is empty: the text has no characters");
}

void CharacterTokenizer::encode(std::string_view utf8, std::vector<std::int32_t>& ids) const {
  check_utf8(utf8);
  for (std::size_t at = 0; at < utf8.size();) {
    const CodePoint next = code_point_at(utf8, at);
    const auto id = ids_.find(next.value);
    if (id == ids_.end())
      throw TextError(concat("character ", code_point_name(next.value), " at "), at, " is not in " + name_);
    ids.push_back(id->second);
    at += next.bytes;
  }
}

std::string CharacterTokenizer::decode(std::span<const std::int32_t> ids) const {
  check_ids(ids, size());
  std::string text;
  for (const std::int32_t id : ids) text += characters_[static_cast<std::size_t>(id)];
  return text;
}

std::int64_t CharacterTokenizer::bytes_of(std::int32_t id) const {
  check_ids({&id, 1}, size());
  return static_cast<std::int64_t>(characters_[static_cast<std::size_t>(id)].size());
}

std::string CharacterTokenizer::table() const {
  std::string text;
  for (const std::string& character : characters_) text += character;
  return nlohmann::json{{"characters", text}}.dump() + "\n";
}

std::uint64_t CharacterTokenizer::fingerprint() const {
  const std::string text = table();
  return xxh64(std::as_bytes(std::span(text)));
}

void add_characters(std::string_view utf8, std::set<char32_t>& characters) {
  check_utf8(utf8);
  char32_t last = 0x110000;  // runs of one character are looked up once
  for (std::size_t at = 0; at < utf8.size();) {
    const CodePoint next = code_point_at(utf8, at);
    if (next.value != last) characters.insert(next.value);
    last = next.value;
    at += next.bytes;
  }
}

}  // namespace isobar
