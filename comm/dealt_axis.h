// An axis whose indices are dealt over a group of ranks, in order: tokens of a sample, or rows of a picture. Of a
// tensor [A, N, K] whose middle axis is dealt, rank r holds [A, n_r, K]; A is samples or channels, K what lies at one
// index.
//
// A collective puts whole parts one behind the other, [r][A][n_r][K], while kernels need [A][N][K]. What lies between
// the two are copies: part by part, A runs each.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "kernels/common/window.h"

namespace isobar {

class DealtAxis {
 public:
  // `total` indices that `ranks` ranks hold as part_of (comm/mesh.h) deals them, in whole units of `unit` of them.
  // Error where the unit does not divide the total.
  DealtAxis(std::int64_t total, int ranks, std::int64_t unit = 1);

  int ranks() const { return static_cast<int>(counts_.size()); }
  std::int64_t total() const { return total_; }
  std::int64_t count(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  std::int64_t first(int rank) const { return firsts_[static_cast<std::size_t>(rank)]; }
  Span span(int rank) const { return {first(rank), total_}; }

  // What each rank holds where every index has `width` elements: counts of a collective.
  std::vector<std::int64_t> elements(std::int64_t width) const;

 private:
  std::int64_t total_;
  std::vector<std::int64_t> counts_, firsts_;  // by rank
};

// All ranks' parts: from [A·n_r, K] of each to [A·N, K] on all; A is `groups`. Outside the graph. One all_gather.
Tensor gather_axis(const Tensor& mine, std::int64_t groups, const DealtAxis& axis, const Communicator& ranks);

// The sum over the ranks, of which each gets its part: from [A·N, K] to [A·n_r, K]. Outside the graph. One
// reduce_scatter.
Tensor reduce_scatter_axis(const Tensor& all, std::int64_t groups, const DealtAxis& axis, const Communicator& ranks);

}  // namespace isobar
