// The text to model: options of the config.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/keys.h"

namespace isobar {

enum class TokenizerKind : std::uint8_t { characters, bytes, gpt2_bpe };

template <>
struct EnumNames<TokenizerKind> {
  static constexpr std::array names{"characters", "bytes", "gpt2_bpe"};
};

struct TextOptions {
  std::string text_path = "data/text.txt";
  std::string valid_text_path;  // empty: the end of text_path
  std::string test_text_path;   // empty: no test set
  double valid_fraction = 0.1;
  TokenizerKind tokenizer = TokenizerKind::characters;
  std::string vocab_file, merge_file;
  std::int64_t seq_length = 1024;
  std::optional<std::int64_t> vocab_size;

  KeyTable keys();

  bool has_test() const { return !test_text_path.empty(); }
};

}  // namespace isobar
