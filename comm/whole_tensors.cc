#include "comm/whole_tensors.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "comm/pieces.h"
#include "engine/files/checksum.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

template <class T>
std::vector<T> gather_all(const std::vector<T>& mine, const Communicator& world) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather_bytes(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  return all;
}

// Assembles the pieces, concatenated in the order of the ranks, to the whole tensor on the host.
Tensor put_together(const Tensor& received, const std::vector<std::int64_t>& counts, const Pieces& pieces,
                    std::size_t tensor, const Shape& full_shape) {
  const Tensor host = received.to(Device{});
  if (counts[0] == host.numel()) return host.view(full_shape);
  const Tensor whole = Tensor::empty(full_shape, host.dtype(), Device{});
  const std::size_t size = size_of(host.dtype());
  auto* to = static_cast<std::byte*>(whole.data());
  const auto* from = static_cast<const std::byte*>(host.data());
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] == 0) continue;
    const Piece& piece = pieces.of(r, tensor);
    const auto copy = [&](std::int64_t in_full, std::int64_t in_part, std::int64_t length) {
      std::memcpy(to + static_cast<std::size_t>(in_full) * size, from + static_cast<std::size_t>(in_part) * size,
                  static_cast<std::size_t>(length) * size);
    };
    for_each_run(full_shape, piece.shard(), piece.elements(), copy);
    from += static_cast<std::size_t>(counts[r]) * size;
  }
  return whole;
}

// The whole tensor in the order of files on the first rank; an undefined one on the others.
Tensor gather(const FlatBuffer& buffer, const NamedParameter& p, const Pieces& pieces, std::size_t tensor,
              const Communicator& world) {
  const auto rank = static_cast<std::size_t>(world.rank());
  const std::vector<std::int64_t> counts = pieces.givers(tensor);
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  ISOBAR_CHECK(total == numel_of(p.full_shape), "the ranks hold ", total, " of the ", numel_of(p.full_shape),
               " elements of ", buffer.prefix, p.name);
  HeldPart part = held_part(buffer, p);
  if (counts[rank] == 0) part = {};
  const Tensor mine = values_of(buffer, part);
  Tensor received = mine;
  if (counts[0] != total) {
    std::vector<std::int64_t> to(pieces.ranks()), from(pieces.ranks());
    to[0] = counts[rank];
    if (rank == 0) from = counts;
    received = Tensor::empty({rank == 0 ? total : 0}, mine.dtype(), mine.device());
    world.all_to_all(mine, to, received, from);
  }
  if (rank != 0) return {};
  const Tensor whole = put_together(received, counts, pieces, tensor, shape_in_memory(p.full_shape, p.order));
  return to_file_order(whole, p.full_shape, p.order).view(p.full_shape);
}

}  // namespace

void write_whole(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers,
                 const Metadata& metadata, const Communicator& world) {
  std::vector<Pieces> pieces;
  for (const FlatBuffer& buffer : buffers) pieces.emplace_back(parameters, buffer, world);
  const auto whole = [&](const FlatBuffer& buffer, const NamedParameter& p) {
    const auto b = static_cast<std::size_t>(&buffer - buffers.data());
    const auto tensor = static_cast<std::size_t>(&p - parameters.named().data());
    return gather(buffer, p, pieces[b], tensor, world);
  };
  if (world.rank() == 0) return write_flat(path, parameters, buffers, metadata, whole);
  for (const FlatBuffer& buffer : buffers)
    for (const NamedParameter& p : parameters.named())
      if (buffer.has(p)) whole(buffer, p);
}

void visit_whole(const Parameters& parameters, const FlatBuffer& buffer, const Communicator& world,
                 const VisitTensor& visit) {
  const Pieces pieces(parameters, buffer, world);
  for (std::size_t i = 0; i < parameters.named().size(); ++i) {
    const NamedParameter& p = parameters.named()[i];
    if (!buffer.has(p)) continue;
    const Tensor whole = gather(buffer, p, pieces, i, world);
    if (world.rank() == 0) visit(p, whole);
  }
}

std::string difference_of_replicas(const Parameters& parameters, const FlatBuffers& buffers,
                                   const Communicator& world) {
  if (world.size() == 1) return {};
  const std::size_t tensors = parameters.named().size();
  for (const FlatBuffer& buffer : buffers) {
    const Pieces pieces(parameters, buffer, world);
    std::vector<std::uint64_t> mine;
    for (const NamedParameter& p : parameters.named()) {
      const Tensor host = values_of(buffer, held_part(buffer, p)).to(Device{});
      mine.push_back(xxh64({static_cast<const std::byte*>(host.data()), host.bytes()}));
    }
    const std::vector<std::uint64_t> all = gather_all(mine, world);
    for (std::size_t i = 0; i < tensors; ++i) {
      for (std::size_t r = 0; r < pieces.ranks(); ++r) {
        const std::size_t first = pieces.first_holder(r, i);
        if (all[r * tensors + i] != all[first * tensors + i])
          return concat("the replicas of ", buffer.prefix, parameters.named()[i].name, " on ranks ", first, " and ", r,
                        " differ");
      }
    }
  }
  return {};
}

}  // namespace isobar
