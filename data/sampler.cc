#include "data/sampler.h"

#include <numeric>

#include "data/random_order.h"
#include "kernels/common/check.h"

namespace isobar {

Sampler::Sampler(std::int64_t samples, bool shuffle, std::uint64_t seed)
    : samples_(samples), shuffle_(shuffle), seed_(seed) {
  ISOBAR_CHECK(samples >= 0, "a sampler of ", samples, " samples is impossible");
}

std::vector<std::int64_t> Sampler::order(std::int64_t epoch) const {
  if (shuffle_) return torch_randperm(samples_, seed_ + static_cast<std::uint64_t>(epoch));
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples_));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace isobar
