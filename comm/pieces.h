// Which parts of every tensor of a buffer each rank of a run holds. The ranks exchange this.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "engine/files/flat_tensors.h"

namespace isobar {

// The part of one tensor that one rank holds.
struct Piece {
  std::int64_t axis = 0, begin = 0, end = 0;  // the shard
  std::int64_t first = 0, last = 0;           // elements [first, last) of it

  std::int64_t size() const { return last - first; }
  FlatRange elements() const { return {first, last}; }
  Shard shard() const { return {static_cast<int>(axis), begin, end}; }
  friend bool operator==(const Piece&, const Piece&) = default;
};

class Pieces {
 public:
  // All ranks of `world` call it, each with its own buffer.
  Pieces(const Parameters& parameters, const FlatBuffer& buffer, const Communicator& world);
  // pieces: the first rank's piece of each tensor, then the next rank's, ...
  Pieces(std::vector<Piece> pieces, std::size_t tensors);

  const Piece& of(std::size_t rank, std::size_t tensor) const { return pieces_[rank * tensors_ + tensor]; }
  std::size_t ranks() const { return ranks_; }

  // The lowest rank that holds the same piece as this rank.
  std::size_t first_holder(std::size_t rank, std::size_t tensor) const { return first_[rank * tensors_ + tensor]; }

  // The number of elements that each rank contributes to the whole tensor.
  std::vector<std::int64_t> givers(std::size_t tensor) const;

 private:
  void find_first_holders();

  std::size_t tensors_ = 0, ranks_ = 0;
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> first_;  // indexed as pieces_
};

}  // namespace isobar
