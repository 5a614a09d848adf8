#include "comm/pieces.h"

#include <bit>
#include <span>
#include <utility>

namespace isobar {
namespace {

std::vector<Piece> own_pieces(const Parameters& parameters, const FlatBuffer& buffer) {
  std::vector<Piece> mine;
  for (const NamedParameter& p : parameters.named()) {
    const HeldPart part = held_part(buffer, p);
    mine.push_back({p.shard.axis, p.shard.begin, p.shard.end, part.first, part.end});
  }
  return mine;
}

std::vector<Piece> pieces_of_all(const std::vector<Piece>& mine, const Communicator& world) {
  std::vector<Piece> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather_bytes(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  return all;
}

// A hash of a piece's numbers.
std::uint64_t hash_of(const Piece& piece) {
  std::uint64_t hash = 0;
  for (const std::int64_t number : {piece.axis, piece.begin, piece.end, piece.first, piece.last}) {
    hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

Pieces::Pieces(const Parameters& parameters, const FlatBuffer& buffer, const Communicator& world)
    : Pieces(pieces_of_all(own_pieces(parameters, buffer), world), parameters.named().size()) {}

Pieces::Pieces(std::vector<Piece> pieces, std::size_t tensors)
    : tensors_(tensors), ranks_(tensors > 0 ? pieces.size() / tensors : 0), pieces_(std::move(pieces)) {
  find_first_holders();
}

// Uses a hash table of the ranks that are first to hold a piece: one look-up for each rank and tensor.
void Pieces::find_first_holders() {
  first_.resize(pieces_.size());
  std::vector<std::uint32_t> table(std::bit_ceil(2 * ranks_ + 1));  // rank + 1; 0: free
  for (std::size_t tensor = 0; tensor < tensors_; ++tensor) {
    table.assign(table.size(), 0);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const Piece& piece = of(rank, tensor);
      std::size_t at = hash_of(piece) & (table.size() - 1);
      while (table[at] != 0 && of(table[at] - 1, tensor) != piece) at = (at + 1) & (table.size() - 1);
      if (table[at] == 0) table[at] = static_cast<std::uint32_t>(rank + 1);
      first_[rank * tensors_ + tensor] = table[at] - 1;
    }
  }
}

std::vector<std::int64_t> Pieces::givers(std::size_t tensor) const {
  std::vector<std::int64_t> counts(ranks_);
  for (std::size_t r = 0; r < ranks_; ++r)
    if (first_holder(r, tensor) == r) counts[r] = of(r, tensor).size();
  return counts;
}

}  // namespace isobar
