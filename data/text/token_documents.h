// Documents of tokens, wherever they come from: a token file, or made up.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace isobar {

class TokenDocuments {
 public:
  virtual ~TokenDocuments() = default;

  // For messages.
  virtual std::string name() const = 0;
  // The tokens of each document; a document may be empty. As for Megatron, these are the sequences of a token file, of
  // which several may belong to one document of the text.
  virtual std::span<const std::int32_t> lengths() const = 0;
  // Writes tokens [first, first + to.size()) of a document. Thread-safe. Error naming document and place for a token
  // that is outside the vocabulary.
  virtual void read(std::int64_t document, std::int64_t first, std::span<std::int32_t> to) const = 0;
};

}  // namespace isobar
