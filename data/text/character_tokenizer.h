// Characters as tokens: an id for each code point of a table, which is made of the training text and lies beside it.
//
// The table is JSON: {"characters": "\n !$&'..."}, each character once; the id is its place, counted from 0. No token
// ends a document.
#pragma once

#include <filesystem>
#include <set>
#include <unordered_map>

#include "data/text/tokenizer.h"

namespace isobar {

class CharacterTokenizer : public Tokenizer {
 public:
  // Error naming the file where it is no such table.
  explicit CharacterTokenizer(const std::filesystem::path& table);
  // The sorted characters of a text.
  explicit CharacterTokenizer(const std::set<char32_t>& characters);

  using Tokenizer::encode;
  std::string type() const override { return "characters"; }
  void encode(std::string_view utf8, std::vector<std::int32_t>& ids) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::int64_t size() const override { return static_cast<std::int64_t>(characters_.size()); }
  Specials specials() const override { return {}; }
  std::int64_t bytes_of(std::int32_t id) const override;
  std::vector<std::string> special_names() const override { return {}; }
  std::uint64_t fingerprint() const override;

  // The table as a file holds it.
  std::string table() const;

 private:
  void add(char32_t character);

  std::string name_ = "the table of characters";
  std::vector<std::string> characters_;  // by id, as UTF-8
  std::unordered_map<char32_t, std::int32_t> ids_;
};

// Adds the characters of a text to a set. Error naming the byte where it is not UTF-8.
void add_characters(std::string_view utf8, std::set<char32_t>& characters);

}  // namespace isobar
