// Text to token ids and back.
//
// Ids are 0 to size() - 1. No special token is ever made of text: a text that looks like one ("<|endoftext|>") is
// encoded as the text that it is, so that a document cannot end itself. Every function is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/common/check.h"

namespace isobar {

// Ids that mean something else than text; -1: the tokenizer has none.
struct Specials {
  std::int32_t eod = -1;  // end of document
  std::int32_t pad = -1;
  friend bool operator==(const Specials&, const Specials&) = default;
};

// A text has no tokens: "character U+0051 at byte 1 is not in the table". Whoever has cut the text out of a file can
// tell the place in the file.
class TextError : public Error {
 public:
  // before, "byte N", behind. byte: from 0.
  TextError(std::string before, std::size_t byte, std::string behind)
      : Error(concat(before, "byte ", byte + 1, behind)),
        byte_(byte),
        before_(std::move(before)),
        behind_(std::move(behind)) {}

  std::size_t byte() const { return byte_; }
  // The sentence with another place than "byte N".
  std::string at(const std::string& place) const { return before_ + place + behind_; }

 private:
  std::size_t byte_;
  std::string before_, behind_;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // "gpt2_bpe", "characters", "bytes" or "numbers".
  virtual std::string type() const = 0;
  // Appends the ids of a text. TextError naming the byte where it is not UTF-8, and for a character that has no id.
  virtual void encode(std::string_view utf8, std::vector<std::int32_t>& ids) const = 0;
  // The text of ids; bytes that are not UTF-8 become U+FFFD. Special tokens are written by their names. Error naming an
  // id that is outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  virtual std::int64_t size() const = 0;
  virtual Specials specials() const = 0;
  // The bytes of text that an id stands for; 0 for special tokens. For bits per byte.
  virtual std::int64_t bytes_of(std::int32_t id) const = 0;
  // The names of special tokens, as they may stand in a text by accident.
  virtual std::vector<std::string> special_names() const = 0;
  // Of all that decides the ids. It is kept beside token files and in a run's settings.
  virtual std::uint64_t fingerprint() const = 0;

  std::vector<std::int32_t> encode(std::string_view utf8) const {
    std::vector<std::int32_t> ids;
    encode(utf8, ids);
    return ids;
  }
};

// A fingerprint as it is written to files: 16 hexadecimal digits.
std::string fingerprint_text(std::uint64_t fingerprint);

// Error unless every id is one of `size` of them.
void check_ids(std::span<const std::int32_t> ids, std::int64_t size);

// TextError naming the byte, unless the text is UTF-8.
void check_utf8(std::string_view text);

struct TokenizerOptions {
  // gpt2_bpe (Megatron's name: GPT2BPETokenizer), characters, bytes or numbers (NullTokenizer)
  std::string type = "gpt2_bpe";
  std::string vocab_file = {}, merge_file = {};  // of gpt2_bpe
  std::string model = {};                        // of characters: the table
  std::string eod = "<|endoftext|>";             // of gpt2_bpe: the token that ends a document
  std::int64_t numbers = 0;                      // of numbers: how many there are, without the one that ends a document
};

// Error naming the option that is missing or does not fit the type, and what is wrong in which file.
std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerOptions& options);

// The kind of tokenizer that a name means: "gpt2_bpe", "characters", "bytes" or "numbers". Error for other names.
std::string tokenizer_kind(const std::string& name);

}  // namespace isobar
