#include "data/sampler.h"

#include "data/random_order.h"
#include "kernels/common/check.h"

namespace isobar {

Sampler::Sampler(std::int64_t samples, bool shuffle, std::uint64_t seed, std::int64_t rank, std::int64_t world)
    : samples_(samples), shuffle_(shuffle), seed_(seed), rank_(rank), world_(world) {
  ISOBAR_CHECK(samples >= 0, "a sampler of ", samples, " samples is impossible");
  ISOBAR_CHECK(world >= 1 && rank >= 0 && rank < world, "rank ", rank, " is not one of ", world);
}

std::vector<std::int64_t> Sampler::order(std::int64_t epoch) const {
  std::vector<std::int64_t> permutation;
  if (shuffle_) permutation = torch_randperm(samples_, seed_ + static_cast<std::uint64_t>(epoch));
  std::vector<std::int64_t> mine;
  for (std::int64_t i = rank_; i < samples_; i += world_)
    mine.push_back(shuffle_ ? permutation[static_cast<std::size_t>(i)] : i);
  return mine;
}

}  // namespace isobar
