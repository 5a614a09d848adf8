// An axis that is sharded over a group of ranks in contiguous parts: tokens of a sample, or rows of a picture. If the
// middle axis of a tensor [A, N, K] is sharded, rank r holds [A, n_r, K]. A counts samples or channels, K the elements
// at one index.
//
// A collective concatenates whole parts, [r][A][n_r][K]; kernels need [A][N][K]. Copies convert between the two: A
// contiguous blocks for each part.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "kernels/common/window.h"

namespace isobar {

class ShardedAxis {
 public:
  // Splits `total` indices over `ranks` ranks as part_of does (comm/mesh.h), in multiples of `unit`. Error if `unit`
  // does not divide `total`.
  ShardedAxis(std::int64_t total, int ranks, std::int64_t unit = 1);
  // The same parts without the indices from `total` on. Error if a rank would have none left.
  ShardedAxis cut_at(std::int64_t total) const;

  int ranks() const { return static_cast<int>(counts_.size()); }
  std::int64_t total() const { return total_; }
  std::int64_t count(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  std::int64_t first(int rank) const { return firsts_[static_cast<std::size_t>(rank)]; }
  Span span(int rank) const { return {first(rank), total_}; }

  // Elements of each rank if every index has `width` elements: the counts of a collective.
  std::vector<std::int64_t> elements(std::int64_t width) const;

 private:
  std::int64_t total_;
  std::vector<std::int64_t> counts_, firsts_;  // by rank
};

// Gathers all ranks' parts: [A·n_r, K] of each rank to [A·N, K] on all; A is `groups`. Not recorded. One all_gather.
Tensor gather_axis(const Tensor& mine, std::int64_t groups, const ShardedAxis& axis, const Communicator& ranks);

// Sums over the ranks, and gives each rank its part: [A·N, K] to [A·n_r, K]. Not recorded. One reduce_scatter.
Tensor reduce_scatter_axis(const Tensor& all, std::int64_t groups, const ShardedAxis& axis, const Communicator& ranks);

}  // namespace isobar
