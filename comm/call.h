// A collective as data: the ledger counts it, faults are injected into it, and a backend executes it.
//
//   verb            this rank's input (send)             its output (receive)
//   all_reduce      n elements                           the same n, reduced over the ranks; in place
//   all_gather      its part                             all parts, in rank order
//   reduce_scatter  all parts, in rank order             its part, reduced over the ranks
//   broadcast       (the root) n elements                the same n; in place
//   all_to_all      a part for every rank, in order      a part from every rank, in order
//   send_receive    n elements for rank `to`             m elements of rank `from`; either may be none
//   barrier         nothing                              nothing, after all ranks have come
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>

#include "kernels/common/device.h"
#include "kernels/common/dtype.h"
#include "kernels/common/stream.h"

namespace isobar {

enum class Verb : std::uint8_t { all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_receive, barrier };
inline constexpr std::size_t kVerbs = 7;

enum class Reduce : std::uint8_t { sum, max };

const char* name_of(Verb verb);

using Counts = std::span<const std::int64_t>;  // elements, by rank of the group; may be unequal or 0

// The offset of the part of `rank`: the sum of the counts of the ranks before it.
inline std::int64_t offset_of(Counts counts, int rank) {
  return std::reduce(counts.begin(), counts.begin() + rank, std::int64_t{0});
}

struct Call {
  static constexpr int kNoRank = -1;

  Verb verb = Verb::barrier;
  std::optional<DType> dtype = std::nullopt;  // of the elements; none: bytes, which cannot be reduced
  Reduce reduce = Reduce::sum;
  const void* send = nullptr;
  void* receive = nullptr;           // equals `send` in place
  Counts sends, receives;            // one entry for "n elements" or "its part" in the table above, else one a rank
  int root = 0;                      // broadcast
  int to = kNoRank, from = kNoRank;  // send_receive
  Device device = {};                // where both buffers lie
  Stream stream = nullptr;           // the call runs in the order of this stream

  std::size_t element_size() const { return dtype ? size_of(*dtype) : 1; }
  std::int64_t sent() const { return std::reduce(sends.begin(), sends.end(), std::int64_t{0}); }
  std::int64_t received() const { return std::reduce(receives.begin(), receives.end(), std::int64_t{0}); }
  // Bytes; what nccl-tests calls the size of an operation: of the whole for all_gather and reduce_scatter, else of this
  // rank's input.
  std::int64_t payload() const;
};

// For messages: "all_reduce of 512 fp32".
std::string to_text(const Call& call);

}  // namespace isobar
