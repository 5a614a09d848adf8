#include "data/batch_cut.h"

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/math.h"

namespace isobar {

void BatchCut::check() const {
  ISOBAR_CHECK(batch >= 1 && parts >= 1, "a batch needs at least one sample and one part, not ", batch, " and ", parts);
  ISOBAR_CHECK(ranks >= 1 && rank >= 0 && rank < ranks, "rank ", rank, " is not one of ", ranks);
}

std::int64_t BatchCut::batches(std::int64_t samples) const {
  return keeps_incomplete ? ceil_div(samples, batch) : samples / batch;
}

std::int64_t BatchCut::batch_size(std::int64_t samples, std::int64_t index) const {
  return std::min(batch, samples - index * batch);
}

Part BatchCut::part(std::int64_t samples, std::int64_t index) const {
  const std::int64_t of = index / parts, first = of * batch;
  const Part within = part_of(batch_size(samples, of), index % parts, parts);
  return {first + within.begin, first + within.end};
}

std::int64_t BatchCut::own(std::int64_t total) const {
  return total > rank ? ceil_div(total - rank, ranks) : 0;
}

}  // namespace isobar
