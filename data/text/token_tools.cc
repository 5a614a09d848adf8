#include "data/text/token_tools.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <iomanip>
#include <sstream>

#include "data/text/token_file.h"
#include "kernels/common/check.h"
#include "kernels/common/printable.h"

namespace isobar {
namespace {

constexpr std::size_t kCopiedBytes = std::size_t{1} << 20;  // at once

void copy_sequence(const TokenFile& from, std::int64_t sequence, std::vector<std::byte>& piece, TokenWriter& to) {
  const auto size = static_cast<std::int64_t>(bytes_of(from.type()));
  const std::int64_t length = from.lengths()[static_cast<std::size_t>(sequence)];
  const std::int64_t at_once = static_cast<std::int64_t>(kCopiedBytes) / size;
  for (std::int64_t first = 0; first < length; first += at_once) {
    piece.resize(static_cast<std::size_t>(std::min(at_once, length - first) * size));
    from.read_stored(sequence, first, piece);
    to.add_stored(piece);
  }
  to.end_stored_sequence();
}

void copy_documents(const TokenFile& from, TokenWriter& to) {
  std::vector<std::byte> piece;
  for (std::int64_t document = 0; document < from.documents(); ++document) {
    const std::int64_t end = from.document_begin(document + 1);
    for (std::int64_t sequence = from.document_begin(document); sequence < end; ++sequence)
      copy_sequence(from, sequence, piece, to);
    to.end_document();
  }
}

// Of two files together, in either order. What one does not tell, or tells otherwise, is unknown of both; of empty
// documents those are counted that are known.
TokenFacts facts_together(const TokenFacts& a, const TokenFacts& b) {
  const TokenFacts unknown;
  const auto common = [&](auto TokenFacts::*fact) { return a.*fact == b.*fact ? a.*fact : unknown.*fact; };
  const bool knows_text = a.text_bytes > 0 && b.text_bytes > 0;
  TokenFacts both{.tokenizer = common(&TokenFacts::tokenizer),
                  .fingerprint = common(&TokenFacts::fingerprint),
                  .vocabulary = common(&TokenFacts::vocabulary),
                  .eod = common(&TokenFacts::eod),
                  .empty_documents = a.empty_documents + b.empty_documents,
                  .text_bytes = knows_text ? a.text_bytes + b.text_bytes : unknown.text_bytes};
  both.has_eod = both.eod >= 0 && a.has_eod && b.has_eod;
  return both;
}

struct ImportedFormat {
  TokenType type = TokenType::u16;  // u16, or i32 for u32: its upper half is refused as negative
  std::uint64_t offset = 0;         // of the first token
  std::uint64_t tokens = 0;
};

// llm.c's header, if the file begins with one.
std::optional<ImportedFormat> llmc_format(const FileReader& file, const std::string& path) {
  constexpr std::int32_t kMagic16 = 20240520, kMagic32 = 20240801;
  constexpr std::uint64_t kHeader = 1024;
  std::array<std::int32_t, 3> header{};
  if (file.read_up_to_end(0, std::as_writable_bytes(std::span(header))) < sizeof header) return std::nullopt;
  const auto [magic, version, count] = header;
  if (magic != kMagic16 && magic != kMagic32) return std::nullopt;
  const std::int32_t expected = magic == kMagic16 ? 1 : 7;
  ISOBAR_CHECK(version == expected, path, " is of version ", version, " of llm.c's format; expected ", expected);
  const TokenType type = magic == kMagic16 ? TokenType::u16 : TokenType::i32;
  const auto tokens = static_cast<std::uint32_t>(count);  // a file of 2^31 tokens or more wraps around there
  const std::uint64_t bytes = kHeader + bytes_of(type) * std::uint64_t{tokens};
  ISOBAR_CHECK(file.size() == bytes, path, " is damaged: its header gives ", tokens, " tokens, which take ", bytes,
               " bytes, but it has ", file.size());
  return ImportedFormat{.type = type, .offset = kHeader, .tokens = tokens};
}

ImportedFormat format_of_tokens(const FileReader& file, const std::string& path) {
  if (const auto format = llmc_format(file, path)) return *format;
  ISOBAR_CHECK(file.size() % 2 == 0, path, " has ", file.size(),
               " bytes, an odd number: it does not hold 16-bit tokens");
  return {.tokens = file.size() / 2};
}

std::string sequence_text(const TokenFile& file, const ShownSequence& show, const Tokenizer* tokenizer) {
  ISOBAR_CHECK(
      show.sequence >= 0 && show.sequence < file.sequences(), file.name(), ": --show ", show.sequence,
      file.sequences() == 0 ? ": there are no sequences" : concat(": sequences are 0 to ", file.sequences() - 1));
  const std::int64_t length = file.lengths()[static_cast<std::size_t>(show.sequence)];
  const std::int64_t count = show.max_tokens == 0 ? length : std::min(length, show.max_tokens);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  file.read(show.sequence, 0, ids);
  std::ostringstream out;
  out << "sequence " << show.sequence << ": " << length << " tokens";
  if (count < length) out << ", the first " << count << " of them (--max-tokens 0 shows all)";
  out << '\n';
  for (std::size_t i = 0; i < ids.size(); ++i) out << (i == 0 ? "" : " ") << ids[i];
  out << '\n';
  if (tokenizer != nullptr) {
    std::istringstream lines(tokenizer->decode(ids));
    for (std::string line; std::getline(lines, line);) out << printable(line) << '\n';
  }
  return out.str();
}

}  // namespace

bool is_token_file(const std::string& path) {
  return std::filesystem::is_regular_file(token_prefix(path) + ".idx");
}

TokenFacts merge_token_files(const std::vector<std::string>& prefixes, const std::string& output_prefix,
                             ExistingFile existing) {
  ISOBAR_CHECK(!prefixes.empty(), "there is nothing to merge");
  const std::string output = token_prefix(output_prefix);
  std::vector<std::string> names;
  std::optional<TokenType> type;
  TokenFacts facts;
  std::optional<std::pair<std::string, TokenFacts>> known;  // a file whose tokenizer is known
  for (const std::string& path : prefixes) {
    const TokenFile file(path);
    names.push_back(file.name());
    std::error_code ignored;
    ISOBAR_CHECK(!std::filesystem::equivalent(file.name() + ".idx", output + ".idx", ignored), output,
                 " is one of the files that are merged");
    ISOBAR_CHECK(!file.has_modes(), file.name(), ".idx has modes (several kinds of data), which would be lost");
    ISOBAR_CHECK(type.value_or(file.type()) == file.type(), names[0], " holds ", name_of(*type), " and ", file.name(),
                 " holds ", name_of(file.type()));
    type = file.type();
    const TokenFacts more = read_token_facts(file.name()).value_or(TokenFacts{});
    if (known) check_same_tokenizer(known->first, known->second, file.name(), more);
    if (!more.fingerprint.empty()) known.emplace(file.name(), more);
    facts = names.size() == 1 ? more : facts_together(facts, more);
  }
  TokenWriter writer(output, *type, existing);
  for (const std::string& name : names) copy_documents(TokenFile(name), writer);
  writer.finish(facts);
  return read_token_facts(output).value();
}

TokenFacts import_tokens(const ImportOptions& options) {
  const FileReader file(options.path);
  const ImportedFormat format = format_of_tokens(file, options.path);
  ISOBAR_CHECK(format.tokens > 0, options.path, " holds no tokens");
  const std::size_t size = bytes_of(format.type), at_once = kCopiedBytes / size;
  TokenWriter writer(token_prefix(options.output_prefix), token_type_for(options.vocabulary), options.existing);
  std::vector<std::byte> stored, packed;
  std::vector<std::int64_t> tokens;
  bool is_open = false;  // a document has begun
  for (std::uint64_t first = 0; first < format.tokens; first += at_once) {
    tokens.resize(static_cast<std::size_t>(std::min<std::uint64_t>(at_once, format.tokens - first)));
    stored.resize(tokens.size() * size);
    file.read(format.offset + first * size, stored);
    unpack_tokens(format.type, stored, tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      ISOBAR_CHECK(tokens[i] >= 0 && tokens[i] < options.vocabulary, options.path, ": token ", tokens[i], " at place ",
                   first + i, " is outside the vocabulary of ", options.vocabulary);
      const auto token = static_cast<std::int32_t>(tokens[i]);
      packed.clear();
      pack_tokens(token_type_for(options.vocabulary), {&token, 1}, packed);
      writer.add_stored(packed);
      is_open = token != options.eod;
      if (is_open) continue;
      writer.end_stored_sequence();
      writer.end_document();
    }
  }
  if (is_open) {
    writer.end_stored_sequence();
    writer.end_document();
  }
  const TokenFacts facts{.tokenizer = options.tokenizer,
                         .fingerprint = options.fingerprint,
                         .vocabulary = options.vocabulary,
                         .eod = options.eod,
                         .has_eod = options.eod >= 0 && !is_open};
  writer.finish(facts);
  return read_token_facts(token_prefix(options.output_prefix)).value();
}

std::string describe_tokens(const std::string& path, const std::optional<ShownSequence>& show,
                            const Tokenizer* tokenizer) {
  const std::optional<TokenFacts> facts = read_token_facts(token_prefix(path));
  if (facts && tokenizer != nullptr && !facts->fingerprint.empty()) {
    const std::string given = fingerprint_text(tokenizer->fingerprint());
    ISOBAR_CHECK(facts->fingerprint == given, token_prefix(path), " was made by tokenizer ", facts->tokenizer, ' ',
                 facts->fingerprint, ", not by ", tokenizer->type(), ' ', given);
  }
  const TokenFile file(path, tokenizer != nullptr ? tokenizer->size() : std::numeric_limits<std::int32_t>::max());
  std::int32_t longest = 0;
  std::int64_t empty = 0;
  for (const std::int32_t length : file.lengths()) {
    longest = std::max(longest, length);
    empty += length == 0 ? 1 : 0;
  }
  std::ostringstream out;
  out << std::fixed << std::setprecision(2);
  out << file.name() << ": token file, " << name_of(file.type()) << (file.has_modes() ? ", with modes" : "") << '\n'
      << file.documents() << " documents, " << file.sequences() << " sequences, " << file.tokens() << " tokens\n"
      << "longest sequence: " << longest << " tokens; empty: " << empty << '\n';
  if (!facts) {
    out << "tokenizer: unknown, there is no " << file.name() << ".json\n";
  } else {
    ISOBAR_CHECK(facts->tokens == file.tokens(), file.name(), ".json is of another token file: it tells of ",
                 facts->tokens, " tokens, but there are ", file.tokens());
    out << "tokenizer: " << (facts->fingerprint.empty() ? "unknown" : facts->tokenizer + " " + facts->fingerprint)
        << ", " << facts->vocabulary << " tokens; ";
    out << (facts->has_eod ? concat("every document ends with token ", facts->eod)
                           : "documents have no token at their end");
    if (facts->text_bytes > 0 && facts->tokens > 0)
      out << "; " << facts->text_bytes << " bytes of text, "
          << static_cast<double>(facts->text_bytes) / static_cast<double>(facts->tokens) << " a token";
    out << '\n';
  }
  if (show) out << sequence_text(file, *show, tokenizer);
  return out.str();
}

}  // namespace isobar
