// How the order of an epoch is divided: into batches, each batch into parts that are computed one after the other, and
// each part over ranks. The sizes need not divide each other: parts and ranks get shares as equal as possible.
#pragma once

#include <cstdint>

#include "comm/mesh.h"

namespace isobar {

struct BatchCut {
  std::int64_t batch = 1;            // samples of a batch, summed over its parts and ranks
  std::int64_t parts = 1;            // number of parts of a batch
  bool keeps_incomplete = false;     // whether an incomplete last batch of an epoch is kept or dropped
  std::int64_t rank = 0, ranks = 1;  // rank r of R reads samples r, r + R, ... of every part

  // Throws Error if batch, parts, rank or ranks is out of range.
  void check() const;

  std::int64_t batches(std::int64_t samples) const;  // number of batches of an epoch of `samples` samples
  // Number of samples of batch `index` of an epoch: `batch`, or fewer in the last one.
  std::int64_t batch_size(std::int64_t samples, std::int64_t index) const;
  // The range of positions in the epoch's order of part `index` (counted over the whole epoch), for all ranks together.
  // Parts of an incomplete batch may be empty.
  Part part(std::int64_t samples, std::int64_t index) const;

  // This rank's number of samples of a part with `total` samples.
  std::int64_t own(std::int64_t total) const;
  // Max number of samples of this rank in a part.
  std::int64_t largest_part() const { return own(part_of(batch, 0, parts).size()); }
};

}  // namespace isobar
