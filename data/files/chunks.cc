#include "data/files/chunks.h"

#include <algorithm>

#include "data/files/array_copy.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

// Calls visit(at) for every position [first, end) of a grid, row-major.
template <class Visit>
void for_each_in_grid(const std::vector<std::int64_t>& first, const std::vector<std::int64_t>& end,
                      const Visit& visit) {
  std::vector<std::int64_t> at = first;
  std::size_t d = at.size();
  do {
    visit(at);
    for (d = at.size(); d > 0; --d) {
      if (++at[d - 1] < end[d - 1]) break;
      at[d - 1] = first[d - 1];
    }
  } while (d > 0);
}

}  // namespace

std::vector<std::int64_t> chunk_grid(std::span<const std::int64_t> shape, std::span<const std::int64_t> chunk) {
  std::vector<std::int64_t> grid;
  for (std::size_t d = 0; d < shape.size(); ++d) grid.push_back(shape[d] / chunk[d] + (shape[d] % chunk[d] ? 1 : 0));
  return grid;
}

ChunkGrid::ChunkGrid(std::vector<std::int64_t> shape, std::vector<std::int64_t> chunk, std::size_t element,
                     const std::string& where)
    : shape_(std::move(shape)), chunk_(std::move(chunk)), grid_(chunk_grid(shape_, chunk_)), element_(element) {
  chunks_ = checked_product(grid_, where + ", the number of its chunks,");
  std::vector<std::int64_t> bytes = chunk_;
  bytes.push_back(static_cast<std::int64_t>(element));
  chunk_bytes_ = static_cast<std::size_t>(checked_product(bytes, where + ", a chunk,"));
}

void ChunkGrid::for_each_part(std::span<const std::int64_t> start, std::span<const std::int64_t> count,
                              const std::function<void(const ChunkPart& part)>& visit) const {
  std::vector<std::int64_t> first, end;
  for (std::size_t d = 0; d < chunk_.size(); ++d) {
    first.push_back(start[d] / chunk_[d]);
    end.push_back((start[d] + count[d] - 1) / chunk_[d] + 1);
  }
  for_each_in_grid(first, end, [&](const std::vector<std::int64_t>& at) { visit(part_of(at, start, count)); });
}

ChunkPart ChunkGrid::part_of(const std::vector<std::int64_t>& at, std::span<const std::int64_t> start,
                             std::span<const std::int64_t> count) const {
  std::vector<std::int64_t> in_chunk, in_box, shared;  // of the first element, and how many there are
  for (std::size_t d = 0; d < at.size(); ++d) {
    const std::int64_t corner = at[d] * chunk_[d];
    const std::int64_t first = std::max(start[d], corner);
    // The extent of a chunk may be anything, so that its end is not computed.
    const std::int64_t end = start[d] + count[d] - corner < chunk_[d] ? start[d] + count[d] : corner + chunk_[d];
    in_chunk.push_back(first - corner);
    in_box.push_back(first - start[d]);
    shared.push_back(end - first);
  }
  const auto element = static_cast<std::int64_t>(element_);
  return {at, position_in(grid_, at), from_in_bytes(copy_axes(chunk_, count, shared), element),
          position_in(chunk_, in_chunk) * element, position_in(count, in_box)};
}

std::pair<std::int64_t, std::int64_t> ChunkGrid::rows_of(std::int64_t index) const {
  const std::int64_t first = index / (chunks_ / grid_[0]) * chunk_[0];
  return {first, std::min(shape_[0], first + chunk_[0]) - 1};
}

ChunkCache::Decoded ChunkCache::get(std::int64_t index, const std::function<std::vector<std::byte>()>& decode) {
  {
    const std::lock_guard guard(mutex_);
    if (const auto found = kept_.find(index); found != kept_.end()) return found->second;
  }
  auto decoded = std::make_shared<const std::vector<std::byte>>(decode());
  const std::lock_guard guard(mutex_);
  if (!kept_.contains(index) && spend(std::ssize(*decoded))) kept_.emplace(index, decoded);
  return decoded;
}

bool ChunkCache::spend(std::int64_t bytes) const {
  if (budget_ == nullptr) return false;
  if (budget_->fetch_sub(bytes) >= bytes) return true;
  budget_->fetch_add(bytes);
  return false;
}

}  // namespace isobar
