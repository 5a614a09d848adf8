// What formats with chunks share: which chunks a box meets, what of each lies in the box, and a cache of decoded ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/files/box_reader.h"
#include "data/files/strided_copy.h"

namespace isobar {

// How many chunks cover an array, on each axis.
std::vector<std::int64_t> chunk_grid(std::span<const std::int64_t> shape, std::span<const std::int64_t> chunk);

// What a chunk holds of a box.
struct ChunkPart {
  std::vector<std::int64_t> at;  // of the chunk, in the grid of chunks
  std::int64_t index = 0;        // the same, row-major
  // The copy of the part, for array_copy.h: out of a chunk that lies row-major, into the box.
  std::vector<CopyAxis> axes;     // from: bytes
  std::int64_t from = 0, to = 0;  // of the first element: byte of the chunk, position in the box
};

// An array of shape `shape` in chunks of shape `chunk`. Those at the end of an axis may reach beyond the array; all are
// stored whole.
class ChunkGrid {
 public:
  // Error that begins with `where` if a chunk, or the number of chunks, has an impossible size. Extents of chunks are
  // at least 1; element: its bytes.
  ChunkGrid(std::vector<std::int64_t> shape, std::vector<std::int64_t> chunk, std::size_t element,
            const std::string& where);

  const std::vector<std::int64_t>& chunk() const { return chunk_; }
  std::int64_t chunks() const { return chunks_; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }  // decoded

  // Visits the chunks that a box meets, row-major. The box is within the array and not empty.
  void for_each_part(std::span<const std::int64_t> start, std::span<const std::int64_t> count,
                     const std::function<void(const ChunkPart& part)>& visit) const;
  // The first and the last position on axis 0 that the chunk of this index covers.
  std::pair<std::int64_t, std::int64_t> rows_of(std::int64_t index) const;

 private:
  ChunkPart part_of(const std::vector<std::int64_t>& at, std::span<const std::int64_t> start,
                    std::span<const std::int64_t> count) const;

  std::vector<std::int64_t> shape_, chunk_, grid_;
  std::size_t element_ = 0, chunk_bytes_ = 0;
  std::int64_t chunks_ = 0;
};

// Keeps decoded chunks until the budget is spent. Access is random, so replacing the least recently used one would hit
// no more often. Thread-safe; two threads may decode the same chunk at the same time.
class ChunkCache {
 public:
  using Decoded = std::shared_ptr<const std::vector<std::byte>>;

  explicit ChunkCache(CacheBudget budget) : budget_(std::move(budget)) {}

  // The chunk from memory, or what decode() returns, which is kept if the budget has room for it.
  Decoded get(std::int64_t index, const std::function<std::vector<std::byte>()>& decode);

 private:
  bool spend(std::int64_t bytes) const;  // whether the budget had so many bytes left

  CacheBudget budget_;
  std::mutex mutex_;
  std::unordered_map<std::int64_t, Decoded> kept_;
};

}  // namespace isobar
