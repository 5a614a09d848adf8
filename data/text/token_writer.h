// Writes a token file (data/text/token_file.h), byte for byte as Megatron does. Its memory does not grow with the file.
//
// PREFIX.bin, PREFIX.json and PREFIX.idx get their names at the end, in this order. A reader asks for PREFIX.idx: until
// it exists, there is no token file, whatever ended the writer.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/text/scratch_numbers.h"
#include "data/text/token_facts.h"
#include "data/text/token_type.h"
#include "engine/files/atomic_file.h"

namespace isobar {

enum class ExistingFile : bool { refused, replaced };

class TokenWriter {
 public:
  // Error if PREFIX.idx exists and is not to be replaced, or its folder does not exist.
  TokenWriter(const std::string& prefix, TokenType type, ExistingFile existing);

  // A sequence of tokens that fit the type.
  void add_sequence(std::span<const std::int32_t> tokens);
  // The same, as the file stores them.
  void add_stored(std::span<const std::byte> tokens);  // a part of a sequence
  void end_stored_sequence();
  // The sequences since the last call are a document.
  void end_document();

  std::int64_t tokens() const { return tokens_; }
  // The number of documents and tokens is filled in.
  void finish(TokenFacts facts);

 private:
  void write_index();
  void write_tokens(bool all);

  std::string prefix_;
  TokenType type_;
  AtomicFile tokens_file_, index_file_;
  ScratchNumbers lengths_, begins_;
  std::vector<std::byte> pending_;
  std::int64_t tokens_ = 0, length_ = 0;  // of the file; of the sequence that is being stored
};

}  // namespace isobar
