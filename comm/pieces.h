// What every rank of a run holds of every tensor of a buffer, as ranks tell it to each other.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "engine/files/flat_tensors.h"

namespace isobar {

// What one rank holds of one tensor.
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
  // Every rank of `world` calls it with its own.
  Pieces(const Parameters& parameters, const FlatBuffer& buffer, const Communicator& world);
  // pieces: of the first rank a piece of each tensor, of the next rank, ...
  Pieces(std::vector<Piece> pieces, std::size_t tensors);

  const Piece& of(std::size_t rank, std::size_t tensor) const { return pieces_[rank * tensors_ + tensor]; }
  std::size_t ranks() const { return ranks_; }

  // The lowest rank that holds what this rank holds.
  std::size_t first_holder(std::size_t rank, std::size_t tensor) const { return first_[rank * tensors_ + tensor]; }

  // Elements that each rank has to give for the whole tensor.
  std::vector<std::int64_t> givers(std::size_t tensor) const;

 private:
  void find_first_holders();

  std::size_t tensors_ = 0, ranks_ = 0;
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> first_;  // as pieces_
};

}  // namespace isobar
