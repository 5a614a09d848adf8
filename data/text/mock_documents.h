// Documents that are made up, for runs without data: as Megatron's mock data. Each has the tokens 1, 2, 3, ... and the
// end of document; lengths are 1 to 4,095, from numpy.random.default_rng(0).
#pragma once

#include <vector>

#include "data/text/token_documents.h"

namespace isobar {

class MockDocuments : public TokenDocuments {
 public:
  // Error if a token is outside the vocabulary.
  MockDocuments(std::int32_t eod, std::int64_t vocabulary);

  std::string name() const override { return "mock data"; }
  std::span<const std::int32_t> lengths() const override { return lengths_; }
  void read(std::int64_t document, std::int64_t first, std::span<std::int32_t> to) const override;

 private:
  std::int32_t eod_;
  std::vector<std::int32_t> lengths_;
};

}  // namespace isobar
