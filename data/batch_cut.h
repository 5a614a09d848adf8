// How the order of an epoch is cut: into batches, each batch into parts that are computed one after the other, and each
// part over ranks. None of them need divide the other: parts and ranks are as equal as they go.
#pragma once

#include <cstdint>

#include "comm/mesh.h"

namespace isobar {

struct BatchCut {
  std::int64_t batch = 1;            // samples of a batch, over all its parts and ranks
  std::int64_t parts = 1;            // of a batch
  bool keeps_incomplete = false;     // an epoch's last batch may be smaller; else its samples are left out
  std::int64_t rank = 0, ranks = 1;  // rank r of R has the samples r, r + R, ... of every part

  // Throws Error where a batch cannot be cut in that way at all.
  void check() const;

  std::int64_t batches(std::int64_t samples) const;  // of an epoch of so many samples
  // Samples of batch `index` of an epoch: `batch`, or fewer in the last one.
  std::int64_t batch_size(std::int64_t samples, std::int64_t index) const;
  // Positions in the epoch's order of part `index`, counted over the whole epoch, for all ranks together. It may be
  // empty in a batch that is incomplete.
  Part part(std::int64_t samples, std::int64_t index) const;

  // Of `total` samples of a part, those of this rank.
  std::int64_t own(std::int64_t total) const;
  // The most samples that this rank has in a part.
  std::int64_t largest_part() const { return own(part_of(batch, 0, parts).size()); }
};

}  // namespace isobar
