#include "data/text/gpt2_tokenizer.h"

#include <bit>
#include <cstring>
#include <utility>

#include "data/text/gpt2_files.h"
#include "data/text/pieces.h"
#include "data/text/utf8.h"
#include "engine/files/checksum.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// Of the tokens, the rules and the end of a document; not of how the files are laid out.
std::uint64_t fingerprint_of(const Gpt2Files& files, std::int32_t eod) {
  Xxh64 hash;
  const auto add = [&](std::string_view text) { hash.update(std::as_bytes(std::span(text))); };
  add("gpt2_bpe");
  for (const std::string& token : files.tokens) {
    add(std::to_string(token.size()) + ":");
    add(token);
  }
  for (const BytePairs::Rule& rule : files.rules) add(concat(rule.left, ' ', rule.right, ' ', rule.result, '\n'));
  add(std::to_string(eod));
  return hash.value();
}

// Up to eight bytes as a number.
std::uint64_t word_of(const char* bytes, std::size_t n) {
  std::uint64_t word = 0;
  if (n >= 8) {
    std::memcpy(&word, bytes, 8);
  } else if (n >= 4) {  // two loads that may overlap
    std::uint32_t first, last;
    std::memcpy(&first, bytes, 4);
    std::memcpy(&last, bytes + n - 4, 4);
    word = std::uint64_t{last} << 32 | first;
  } else {  // first, middle and last byte
    const auto byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(bytes[i])}; };
    word = byte(0) | byte(n / 2) << 8 | byte(n - 1) << 16;
  }
  return word;
}

}  // namespace

Gpt2Tokenizer::WholePieces::WholePieces(std::size_t pieces) : slots_(std::bit_ceil(2 * pieces + 2)) {}

std::uint64_t Gpt2Tokenizer::WholePieces::hash_of(std::string_view piece) {
  constexpr std::uint64_t kMultiplier = 0x9e3779b97f4a7c15u;
  std::uint64_t hash = piece.size();
  for (std::size_t at = 0; at < piece.size(); at += 8) {
    hash = (hash ^ word_of(piece.data() + at, piece.size() - at)) * kMultiplier;
    hash ^= hash >> 32;
  }
  return hash;
}

void Gpt2Tokenizer::WholePieces::add(std::string_view piece, std::int32_t id) {
  const std::uint64_t hash = hash_of(piece);
  std::size_t slot = hash & (slots_.size() - 1);
  while (slots_[slot].id >= 0) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = {.hash = hash,
                  .begin = static_cast<std::uint32_t>(text_.size()),
                  .bytes = static_cast<std::uint32_t>(piece.size()),
                  .id = id};
  text_ += piece;
}

std::int32_t Gpt2Tokenizer::WholePieces::find(std::string_view piece) const {
  const std::uint64_t hash = hash_of(piece);
  for (std::size_t slot = hash & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1)) {
    const Slot& found = slots_[slot];
    if (found.id < 0) return -1;
    if (found.hash == hash && found.bytes == piece.size() &&
        std::memcmp(text_.data() + found.begin, piece.data(), piece.size()) == 0)
      return found.id;
  }
}

Gpt2Tokenizer::Gpt2Tokenizer(const std::string& vocab_file, const std::string& merge_file, const std::string& eod)
    : pairs_({}), whole_(0) {
  Gpt2Files files = read_gpt2_files(vocab_file, merge_file);
  byte_ids_ = files.byte_ids;
  pairs_ = BytePairs(files.rules);
  whole_ = WholePieces(files.tokens.size());
  std::vector<std::int32_t> ids;
  for (std::size_t id = 0; id < files.tokens.size(); ++id) {
    const std::string& token = files.tokens[id];
    is_special_.push_back(!files.is_made[id]);
    if (is_special_.back()) special_names_.push_back(token);
    if (token == eod) eod_ = static_cast<std::int32_t>(id);
    if (is_special_.back()) continue;
    // A token need not come out of its own bytes: rules of lower rank may tear it.
    ids.clear();
    for (const char byte : token) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    pairs_.merge(ids, 0);
    if (ids.size() == 1) whole_.add(token, ids[0]);
  }
  ISOBAR_CHECK(eod_ >= 0, vocab_file, ": the token that ends a document, ", in_quotes(eod), ", is missing");
  ISOBAR_CHECK(is_special_[static_cast<std::size_t>(eod_)], "token ", in_quotes(eod), " can be made of text (",
               merge_file, "), so it cannot end a document");
  fingerprint_ = fingerprint_of(files, eod_);
  tokens_ = std::move(files.tokens);
}

void Gpt2Tokenizer::encode(std::string_view utf8, std::vector<std::int32_t>& ids) const {
  check_utf8(utf8);
  Pieces pieces(utf8);
  while (!pieces.at_end()) encode_piece(pieces.next(), ids);
}

void Gpt2Tokenizer::encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (const std::int32_t id = whole_.find(piece); id >= 0) {
    ids.push_back(id);
    return;
  }
  const std::size_t first = ids.size();
  for (const char byte : piece) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  pairs_.merge(ids, first);
}

std::string Gpt2Tokenizer::decode(std::span<const std::int32_t> ids) const {
  check_ids(ids, size());
  std::string bytes;
  for (const std::int32_t id : ids) bytes += tokens_[static_cast<std::size_t>(id)];
  std::int64_t replaced = 0;
  return with_invalid_replaced(bytes, replaced);
}

std::int64_t Gpt2Tokenizer::bytes_of(std::int32_t id) const {
  check_ids({&id, 1}, size());
  const auto at = static_cast<std::size_t>(id);
  return is_special_[at] ? 0 : static_cast<std::int64_t>(tokens_[at].size());
}

}  // namespace isobar
