// Megatron's token files: PREFIX.bin holds the tokens of all sequences one after another, PREFIX.idx where they lie.
//
//   offset       PREFIX.idx, little-endian
//   0            "MMIDIDX", two zero bytes
//   9            u64 version, 1
//   17           u8 type of the tokens (data/text/token_type.h)
//   18           u64 S, the number of sequences
//   26           u64 D, the number of documents + 1
//   34           i32[S] tokens of each sequence
//   34 + 4·S     i64[S] where each begins in PREFIX.bin [bytes]
//   34 + 12·S    i64[D] the sequence that begins each document; the first is 0, the last is S
//   ...          i8[S] modes, in files for several kinds of data; not read
//
// Beside them, PREFIX.json says which tokenizer made them (data/text/token_facts.h).
//
//   source  NVIDIA/Megatron-LM, the format of its indexed data sets
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "data/text/token_documents.h"
#include "data/text/token_type.h"
#include "engine/files/reader.h"

namespace isobar {

inline constexpr std::size_t kIndexHeaderBytes = 34;

// The prefix that a path of a user means: PREFIX, PREFIX.idx or PREFIX.bin.
std::string token_prefix(const std::string& path);
// The prefixes of the token files that `data preprocess` makes with this --output-prefix, one for each key of JSON:
// p_text_document, p_title_document.
std::vector<std::string> token_files_of(const std::string& output_prefix);

// Nothing of PREFIX.bin is kept in memory, and of PREFIX.idx the lengths: 4 bytes a sequence. Files are not mapped: if
// a file is cut while it is read, that is an Error.
class TokenFile : public TokenDocuments {
 public:
  // Tokens must be below `vocabulary`, which is checked when they are read. Error naming the file where one does not
  // exist, is no such file, is cut off, or where the two do not belong together.
  explicit TokenFile(const std::string& path, std::int64_t vocabulary = std::numeric_limits<std::int32_t>::max());

  std::string name() const override { return prefix_; }
  std::span<const std::int32_t> lengths() const override { return lengths_; }
  void read(std::int64_t sequence, std::int64_t first, std::span<std::int32_t> to) const override;

  TokenType type() const { return type_; }
  std::int64_t sequences() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t documents() const { return documents_; }
  std::int64_t tokens() const { return tokens_; }
  bool has_modes() const { return has_modes_; }

  // For copying: the tokens as they are stored, and entry 0 to documents() of the list of documents.
  void read_stored(std::int64_t sequence, std::int64_t first, std::span<std::byte> to) const;
  std::int64_t document_begin(std::int64_t document) const;
  // Whether the sequences lie in PREFIX.bin one after another, without gaps.
  bool is_contiguous() const { return is_contiguous_; }

 private:
  void read_header();
  void read_lengths();
  void check_places();
  void check_documents() const;

  std::string prefix_;
  std::int64_t vocabulary_;
  FileReader index_, tokens_file_;
  TokenType type_ = TokenType::u16;
  std::vector<std::int32_t> lengths_;
  std::int64_t documents_ = 0, tokens_ = 0;
  bool has_modes_ = false, is_contiguous_ = true;
};

}  // namespace isobar
