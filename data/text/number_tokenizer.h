// Numbers as tokens, for data without text: the text "7 1 12" has the ids 7, 1, 12. The last id ends a document. As
// Megatron's NullTokenizer, which made-up data (data/text/mock_documents.h) are usually trained with.
#pragma once

#include "data/text/tokenizer.h"

namespace isobar {

class NumberTokenizer : public Tokenizer {
 public:
  // Ids 0 to numbers - 1, and `numbers`, which ends a document. Error unless 1 <= numbers < 2^31 - 1.
  explicit NumberTokenizer(std::int64_t numbers);

  using Tokenizer::encode;
  std::string type() const override { return "numbers"; }
  // Error naming a word, between white space, that is no number below `numbers`.
  void encode(std::string_view utf8, std::vector<std::int32_t>& ids) const override;
  // With a space between two tokens.
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::int64_t size() const override { return numbers_ + 1; }
  Specials specials() const override { return {.eod = static_cast<std::int32_t>(numbers_)}; }
  // Its digits, and the space before the next one.
  std::int64_t bytes_of(std::int32_t id) const override;
  std::vector<std::string> special_names() const override { return {"<|eod|>"}; }
  std::uint64_t fingerprint() const override;

 private:
  std::int64_t numbers_;
};

}  // namespace isobar
