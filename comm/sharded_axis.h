// An axis that is sharded over a group of ranks: tokens of a sample, or rows of a picture. If the middle axis of a
// tensor [A, N, K] is sharded, rank r holds [A, n_r, K]. A counts samples or channels, K the elements at one index.
//
// A rank has one contiguous part. Or, in zig-zag, two chunks of 2·ranks: r, and the one that is as far from the other
// end. If query i sees the keys up to i, then all ranks have the same number of pairs, while of contiguous parts the
// last one would have almost twice the mean.
//
// A collective concatenates whole parts, [r][A][n_r][K]; kernels need [A][N][K]. Copies convert between the two: A
// contiguous blocks for each chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "kernels/common/window.h"

namespace isobar {

class ShardedAxis {
 public:
  // Splits `total` indices over `ranks` ranks as part_of does (comm/mesh.h), in multiples of `unit`. Error if `unit`
  // does not divide `total`.
  ShardedAxis(std::int64_t total, int ranks, std::int64_t unit = 1);
  // In zig-zag; the chunks are those of part_of. One rank has all of it, in one piece. Error if a chunk would be empty.
  static ShardedAxis in_zigzag(std::int64_t total, int ranks);
  // The same parts without the indices from `total` on. Error if a rank would have none left, and in zig-zag.
  ShardedAxis cut_at(std::int64_t total) const;

  int ranks() const { return static_cast<int>(chunks_.size()); }
  std::int64_t total() const { return total_; }
  std::int64_t count(int rank) const;
  // What a rank has, ascending: one range of indices, or two.
  const std::vector<Part>& chunks(int rank) const { return chunks_[static_cast<std::size_t>(rank)]; }
  std::int64_t first(int rank) const { return chunks(rank).front().begin; }
  Span span(const Part& chunk) const { return {chunk.begin, total_}; }
  // Indices of the ranks before it.
  std::int64_t before(int rank) const;

  // Elements of each rank if every index has `width` elements: the counts of a collective.
  std::vector<std::int64_t> elements(std::int64_t width) const;

 private:
  std::int64_t total_;
  std::vector<std::vector<Part>> chunks_;  // by rank
};

// Gathers all ranks' parts: [A·n_r, K] of each rank to [A·N, K] on all; A is `groups`. Not recorded. One all_gather.
Tensor gather_axis(const Tensor& mine, std::int64_t groups, const ShardedAxis& axis, const Communicator& ranks);

// Sums over the ranks, and gives each rank its part: [A·N, K] to [A·n_r, K]. Not recorded. One reduce_scatter.
Tensor reduce_scatter_axis(const Tensor& all, std::int64_t groups, const ShardedAxis& axis, const Communicator& ranks);

// Between [A, N, K] and parts one after the other, [r][A][n_r][K]: the copies of rank r's chunks. `width`: K.
enum class AxisCopy : std::uint8_t { to_parts, from_parts };
void copy_part(AxisCopy direction, const Tensor& all, const Tensor& parts, std::int64_t groups, std::int64_t width,
               const ShardedAxis& axis, int rank);

// The chunks of a rank's [A·n_r, K], each as a tensor [A·n, K] of its own; one chunk is the tensor itself. And back.
std::vector<Tensor> cut_chunks(const Tensor& part, std::int64_t groups, const std::vector<Part>& chunks);
Tensor join_chunks(const std::vector<Tensor>& cut, std::int64_t groups, const std::vector<Part>& chunks);

}  // namespace isobar
