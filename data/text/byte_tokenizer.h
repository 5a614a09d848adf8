// Bytes as tokens: id = byte, 256 = end of document, 257 = padding. It needs no file and knows every text.
#pragma once

#include "data/text/tokenizer.h"

namespace isobar {

class ByteTokenizer : public Tokenizer {
 public:
  using Tokenizer::encode;
  std::string type() const override { return "bytes"; }
  void encode(std::string_view utf8, std::vector<std::int32_t>& ids) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::int64_t size() const override { return 258; }
  Specials specials() const override { return {.eod = 256, .pad = 257}; }
  std::int64_t bytes_of(std::int32_t id) const override;
  std::vector<std::string> special_names() const override { return {"<|eod|>", "<|pad|>"}; }
  std::uint64_t fingerprint() const override;
};

}  // namespace isobar
