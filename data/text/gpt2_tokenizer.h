// GPT-2's byte-level byte-pair encoding, from its two files.
//
//   vocab.json   JSON object, token -> id; ids are 0 to n - 1, each once
//   merges.txt   "A B" a line, in the order of ranks; a first line that begins with "#version" is skipped
//
// In both files a token is written with one printable character for each byte: bytes 33 to 126, 161 to 172 and 174 to
// 255 are the characters of these numbers, the other 68 are U+0100, U+0101, ... in their order. Text is cut into pieces
// (data/text/pieces.h); the bytes of each are merged (data/text/byte_pairs.h).
//
//   source  Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2, and its encoder
#pragma once

#include <array>
#include <string>

#include "data/text/byte_pairs.h"
#include "data/text/tokenizer.h"

namespace isobar {

class Gpt2Tokenizer : public Tokenizer {
 public:
  // eod: the token that ends a document; it must be in the vocabulary. Error naming file, and token or line, where a
  // token or a number is missing, an id is there twice, or a rule joins what is no token.
  Gpt2Tokenizer(const std::string& vocab_file, const std::string& merge_file, const std::string& eod);

  using Tokenizer::encode;
  std::string type() const override { return "gpt2_bpe"; }
  void encode(std::string_view utf8, std::vector<std::int32_t>& ids) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  Specials specials() const override { return {.eod = eod_}; }
  std::int64_t bytes_of(std::int32_t id) const override;
  std::vector<std::string> special_names() const override { return special_names_; }
  std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  // Pieces that are one token: most pieces of a text are.
  class WholePieces {
   public:
    explicit WholePieces(std::size_t pieces);
    void add(std::string_view piece, std::int32_t id);
    std::int32_t find(std::string_view piece) const;  // -1: it is not one token

   private:
    struct Slot {
      std::uint64_t hash = 0;
      std::uint32_t begin = 0, bytes = 0;
      std::int32_t id = -1;  // -1: empty
    };
    static std::uint64_t hash_of(std::string_view piece);
    std::vector<Slot> slots_;  // a power of two, at most half of them used
    std::string text_;         // of all pieces
  };

  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) const;

  std::vector<std::string> tokens_;  // by id, as bytes; a special token: its name
  std::vector<bool> is_special_;     // by id: no text gives it
  std::vector<std::string> special_names_;
  std::array<std::int32_t, 256> byte_ids_;
  std::int32_t eod_ = -1;
  BytePairs pairs_;
  WholePieces whole_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace isobar
