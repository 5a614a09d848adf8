// The order of an epoch's samples: a function of (seed, epoch) alone.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/common/math.h"

namespace isobar {

class Sampler {
 public:
  // Of samples 0 to samples - 1. Rank `rank` of `world` visits every world-th sample of the common order, starting with
  // the rank-th.
  Sampler(std::int64_t samples, bool shuffle, std::uint64_t seed = 0, std::int64_t rank = 0, std::int64_t world = 1);

  std::int64_t world() const { return world_; }
  std::int64_t total() const { return samples_; }                            // over all ranks
  std::int64_t share() const { return ceil_div(samples_ - rank_, world_); }  // this rank's
  std::int64_t smallest_share() const { return samples_ / world_; }          // what every rank has

  // This rank's samples of one epoch (counted from 0). Shuffled: torch.randperm with seed + epoch, as PyTorch's
  // DistributedSampler does, but without repeating samples to fill up the ranks.
  std::vector<std::int64_t> order(std::int64_t epoch) const;

 private:
  std::int64_t samples_;
  bool shuffle_;
  std::uint64_t seed_;
  std::int64_t rank_, world_;
};

}  // namespace isobar
