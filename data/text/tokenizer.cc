#include "data/text/tokenizer.h"

#include <array>
#include <cstdio>
#include <optional>
#include <utility>

#include "data/text/byte_tokenizer.h"
#include "data/text/character_tokenizer.h"
#include "data/text/gpt2_tokenizer.h"
#include "data/text/number_tokenizer.h"
#include "data/text/utf8.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {

std::string fingerprint_text(std::uint64_t fingerprint) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(fingerprint));
  return digits;
}

void check_ids(std::span<const std::int32_t> ids, std::int64_t size) {
  for (const std::int32_t id : ids)
    ISOBAR_CHECK(id >= 0 && id < size, "token ", id, " is outside the vocabulary of ", size, " tokens");
}

void check_utf8(std::string_view text) {
  const std::optional<std::size_t> bad = first_invalid_byte(text);
  if (bad) throw TextError("", *bad, " is not UTF-8");
}

std::string tokenizer_kind(const std::string& name) {
  if (name == "gpt2_bpe" || name == "GPT2BPETokenizer") return "gpt2_bpe";
  if (name == "numbers" || name == "NullTokenizer") return "numbers";
  if (name == "characters" || name == "bytes") return name;
  throw_error(
      "tokenizer type ", in_quotes(name),
      " does not exist here; expected gpt2_bpe (or GPT2BPETokenizer), characters, bytes or numbers (or NullTokenizer)");
}

std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerOptions& options) {
  const std::string kind = tokenizer_kind(options.type);
  const auto wanted = [&](const std::string& value, const char* flag) {
    ISOBAR_CHECK(!value.empty(), "tokenizer ", kind, " needs ", flag);
  };
  const auto unused = [&](const std::string& value, const char* flag) {
    ISOBAR_CHECK(value.empty(), flag, " means nothing to tokenizer ", kind);
  };
  ISOBAR_CHECK(kind == "numbers" || options.numbers == 0, "--vocab-size means nothing to tokenizer ", kind);
  if (kind == "gpt2_bpe") {
    wanted(options.vocab_file, "--vocab-file");
    wanted(options.merge_file, "--merge-file");
    unused(options.model, "--tokenizer-model");
    return std::make_unique<Gpt2Tokenizer>(options.vocab_file, options.merge_file, options.eod);
  }
  unused(options.vocab_file, "--vocab-file");
  unused(options.merge_file, "--merge-file");
  if (kind == "characters") {
    wanted(options.model, "--tokenizer-model");
    return std::make_unique<CharacterTokenizer>(std::filesystem::path(options.model));
  }
  unused(options.model, "--tokenizer-model");
  if (kind == "bytes") return std::make_unique<ByteTokenizer>();
  ISOBAR_CHECK(options.numbers > 0, "tokenizer numbers needs --vocab-size, how many numbers there are");
  return std::make_unique<NumberTokenizer>(options.numbers);
}

}  // namespace isobar
