// The order of an epoch's samples: a function of (seed, epoch) alone.
#pragma once

#include <cstdint>
#include <vector>

namespace isobar {

class Sampler {
 public:
  // For samples 0 to samples - 1.
  Sampler(std::int64_t samples, bool shuffle, std::uint64_t seed = 0);

  std::int64_t samples() const { return samples_; }
  std::uint64_t seed() const { return seed_; }

  // All samples of one epoch (counted from 0), for all ranks. Shuffled: torch.randperm with seed + epoch, as in
  // PyTorch's DistributedSampler, but no samples are repeated to give all ranks equally many.
  std::vector<std::int64_t> order(std::int64_t epoch) const;

 private:
  std::int64_t samples_;
  bool shuffle_;
  std::uint64_t seed_;
};

}  // namespace isobar
