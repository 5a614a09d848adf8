// PREFIX.json, beside a token file: which tokenizer made it, and how much text it holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace isobar {

struct TokenFacts {
  std::string tokenizer = {}, fingerprint = {};  // Tokenizer::type() and fingerprint_text(); empty: unknown
  std::int64_t vocabulary = 0;                   // Tokenizer::size(); 0: unknown
  std::int64_t eod = -1;                         // the token that ends a document; -1: none
  bool has_eod = false;                          // whether every document ends with it
  std::int64_t documents = 0, tokens = 0;
  std::int64_t empty_documents = 0;  // left out
  std::int64_t text_bytes = 0;       // of the text as UTF-8; 0: unknown
};

// The facts of a prefix, if the file exists. Error naming it where it is no such file.
std::optional<TokenFacts> read_token_facts(const std::string& prefix);
// Written whole or not at all.
void write_token_facts(const std::string& prefix, const TokenFacts& facts);

// Error naming both prefixes if two files were made by different tokenizers. Nothing if one is unknown.
void check_same_tokenizer(const std::string& a, const TokenFacts& of_a, const std::string& b, const TokenFacts& of_b);

}  // namespace isobar
