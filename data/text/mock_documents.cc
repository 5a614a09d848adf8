#include "data/text/mock_documents.h"

#include "data/random_order.h"
#include "kernels/common/check.h"

namespace isobar {

MockDocuments::MockDocuments(std::int32_t eod, std::int64_t vocabulary) : eod_(eod) {
  constexpr int kDocuments = 100000;
  constexpr std::int32_t kMaxLength = 4096;
  ISOBAR_CHECK(vocabulary >= kMaxLength - 1, "mock data has tokens up to ", kMaxLength - 2,
               ", but the vocabulary has only ", vocabulary);
  ISOBAR_CHECK(eod >= 0 && eod < vocabulary, "mock data needs a token that ends a document; ", eod, " is none of ",
               vocabulary);
  NumpyGenerator random(0);
  for (int i = 0; i < kDocuments; ++i) lengths_.push_back(random.integer(1, kMaxLength));
}

void MockDocuments::read(std::int64_t document, std::int64_t first, std::span<std::int32_t> to) const {
  const std::int64_t last = lengths_.at(static_cast<std::size_t>(document)) - 1;
  ISOBAR_CHECK(first >= 0 && first + std::ssize(to) <= last + 1, "mock data: document ", document, " has ", last + 1,
               " tokens");
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::int64_t place = first + static_cast<std::int64_t>(i);
    to[i] = place == last ? eod_ : static_cast<std::int32_t>(place + 1);
  }
}

}  // namespace isobar
