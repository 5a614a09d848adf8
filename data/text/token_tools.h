// What the command does with token files beside making them of text: join, take over from other programs, look at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/text/token_facts.h"
#include "data/text/token_writer.h"
#include "data/text/tokenizer.h"

namespace isobar {

// Writes the documents of all prefixes, in this order, to one token file. Error naming two prefixes whose tokens are of
// different types or tokenizers, and one with modes, which would be lost. Returns the facts that were written.
TokenFacts merge_token_files(const std::vector<std::string>& prefixes, const std::string& output_prefix,
                             ExistingFile existing);

struct ImportOptions {
  std::string path = {}, output_prefix = {};
  std::int64_t vocabulary = 50257;               // tokens are below it
  std::int64_t eod = 50256;                      // the token that ends a document; -1: the file is one document
  std::string tokenizer = {}, fingerprint = {};  // empty: unknown
  ExistingFile existing = ExistingFile::refused;
};

// Makes a token file of a .bin of nanoGPT or llm.c. The tokens stay in their order; a document ends behind each eod.
//   nanoGPT  u16 tokens, nothing else
//   llm.c    256 i32: magic, version (20240520, 1: u16 tokens; 20240801, 7: u32), how many; then the tokens
// Error naming the file where its size does not fit, and the place of a token that is outside the vocabulary. Returns
// the facts that were written.
TokenFacts import_tokens(const ImportOptions& options);

// A sequence to print: its first tokens. 500 tokens of GPT-2 are about 2,000 characters.
struct ShownSequence {
  std::int64_t sequence = 0;
  std::int64_t max_tokens = 500;  // 0: all
};

// A few lines about a token file. show: a sequence whose tokens are printed, and their text if there is a tokenizer.
// Error if the tokenizer is another one than the file's.
std::string describe_tokens(const std::string& path, const std::optional<ShownSequence>& show,
                            const Tokenizer* tokenizer);

// Whether a path means a token file: PREFIX.idx exists.
bool is_token_file(const std::string& path);

}  // namespace isobar
