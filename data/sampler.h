// Which samples an epoch has and in which order: a function of (seed, epoch) alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/era5/era5.h"

namespace isobar {

// all_pairs: every pair of the range, once.
// tutorial: the NERSC tutorial's index rule. A file of n steps gives n samples; index i starts at
//   j = i mod (n - dt), and at j + dt where j < dt. For dt = 1 step 0 is never an input and step 1 is one three times.
enum class SamplerKind : std::uint8_t { all_pairs, tutorial };

SamplerKind parse_sampler(const std::string& name);

// The samples (first steps) of an epoch in file order; `limit` > 0 keeps the first `limit`. A pair over a hole in time,
// whose steps are not dt regular steps apart, is left out.
std::vector<std::int64_t> list_samples(const Era5Dataset& dataset, SamplerKind kind, std::int64_t limit = 0);

// "3 pairs left out: 1 hole in time in 2018.h5", of all that list_samples leaves out without a limit; empty where that is
// nothing.
std::string describe_left_out(const Era5Dataset& dataset, SamplerKind kind);

class Sampler {
 public:
  // Rank `rank` of `world` visits every world-th sample of the common order, starting with the rank-th.
  Sampler(std::vector<std::int64_t> samples, bool shuffle, std::uint64_t seed = 0, std::int64_t rank = 0,
          std::int64_t world = 1);

  std::int64_t world() const { return world_; }
  std::int64_t total() const { return static_cast<std::int64_t>(samples_.size()); }  // over all ranks
  std::int64_t share() const { return (total() - rank_ + world_ - 1) / world_; }     // this rank's
  std::int64_t smallest_share() const { return total() / world_; }                   // what every rank has

  // This rank's samples of one epoch (counted from 0). Shuffled: torch.randperm with seed + epoch, as PyTorch's
  // DistributedSampler does, but without repeating samples to fill up the ranks.
  std::vector<std::int64_t> order(std::int64_t epoch) const;

 private:
  std::vector<std::int64_t> samples_;
  bool shuffle_;
  std::uint64_t seed_;
  std::int64_t rank_, world_;
};

}  // namespace isobar
