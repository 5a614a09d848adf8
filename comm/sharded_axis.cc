#include "comm/sharded_axis.h"

#include "kernels/common/check.h"

namespace isobar {
namespace {

// Elements of [A·n, K] at one index of the axis, over all A groups: A·K.
std::int64_t width_of(const Tensor& x, std::int64_t groups, std::int64_t count) {
  ISOBAR_CHECK(x.shape().size() == 2 && x.size(0) == groups * count, "a dealt axis: ", to_string(x.shape()),
               " are not ", groups, " groups of ", count, " rows");
  return groups * x.size(1);
}

std::int64_t count_of(const std::vector<Part>& chunks) {
  std::int64_t count = 0;
  for (const Part& chunk : chunks) count += chunk.size();
  return count;
}

// Calls visit(chunk, indices of the part before it).
template <class Visit>
void visit_chunks(const std::vector<Part>& chunks, const Visit& visit) {
  std::int64_t before = 0;
  for (const Part& chunk : chunks) {
    visit(chunk, before);
    before += chunk.size();
  }
}

}  // namespace

ShardedAxis::ShardedAxis(std::int64_t total, int ranks, std::int64_t unit) : total_(total) {
  ISOBAR_CHECK(unit >= 1 && total % unit == 0, "a dealt axis: ", total, " indices are no whole units of ", unit);
  for (int r = 0; r < ranks; ++r) {
    const Part part = part_of(total / unit, r, ranks);
    chunks_.push_back({{part.begin * unit, part.end * unit}});
  }
}

ShardedAxis ShardedAxis::in_zigzag(std::int64_t total, int ranks) {
  ShardedAxis axis(total, ranks);
  if (ranks == 1) return axis;
  const int chunks = 2 * ranks;
  ISOBAR_CHECK(total >= chunks, "a dealt axis: ", total, " indices in zig-zag over ", ranks,
               " ranks are fewer than the ", chunks, " chunks");
  for (int r = 0; r < ranks; ++r)
    axis.chunks_[static_cast<std::size_t>(r)] = {part_of(total, r, chunks), part_of(total, chunks - 1 - r, chunks)};
  return axis;
}

ShardedAxis ShardedAxis::cut_at(std::int64_t total) const {
  const Part& last = chunks_.back().front();
  ISOBAR_CHECK(chunks_.back().size() == 1, "a dealt axis in zig-zag cannot be cut");
  ISOBAR_CHECK(total > last.begin && total <= total_, "a dealt axis: ", total, " indices of ", total_,
               " leave none for the last of ", ranks(), " ranks");
  ShardedAxis cut = *this;
  cut.total_ = total;
  cut.chunks_.back().front().end = total;
  return cut;
}

std::int64_t ShardedAxis::count(int rank) const {
  return count_of(chunks(rank));
}

std::int64_t ShardedAxis::before(int rank) const {
  std::int64_t before = 0;
  for (int r = 0; r < rank; ++r) before += count(r);
  return before;
}

std::vector<std::int64_t> ShardedAxis::elements(std::int64_t width) const {
  std::vector<std::int64_t> elements;
  for (const std::vector<Part>& chunks : chunks_) elements.push_back(count_of(chunks) * width);
  return elements;
}

void copy_part(AxisCopy direction, const Tensor& all, const Tensor& parts, std::int64_t groups, std::int64_t width,
               const ShardedAxis& axis, int rank) {
  const std::int64_t begin = groups * axis.before(rank) * width, step = axis.count(rank) * width;
  visit_chunks(axis.chunks(rank), [&](const Part& chunk, std::int64_t before) {
    const StridedBlocks of_all{chunk.begin * width, axis.total() * width}, of_part{begin + before * width, step};
    if (direction == AxisCopy::to_parts)
      copy_strided(parts, of_part, all, of_all, groups, chunk.size() * width);
    else
      copy_strided(all, of_all, parts, of_part, groups, chunk.size() * width);
  });
}

Tensor gather_axis(const Tensor& mine, std::int64_t groups, const ShardedAxis& axis, const Communicator& ranks) {
  const std::int64_t width = width_of(mine, groups, axis.count(ranks.rank())), k = mine.size(1);
  if (axis.ranks() == 1) return mine.detach();
  const Tensor parts = Tensor::empty({groups * axis.total(), k}, mine.dtype(), mine.device());
  ranks.all_gather(mine, parts, axis.elements(width));
  const Tensor all = Tensor::empty(parts.shape(), mine.dtype(), mine.device());
  for (int r = 0; r < axis.ranks(); ++r) copy_part(AxisCopy::from_parts, all, parts, groups, k, axis, r);
  return all;
}

Tensor reduce_scatter_axis(const Tensor& all, std::int64_t groups, const ShardedAxis& axis, const Communicator& ranks) {
  const std::int64_t width = width_of(all, groups, axis.total()), k = all.size(1);
  if (axis.ranks() == 1) return all.detach();
  const Tensor parts = Tensor::empty(all.shape(), all.dtype(), all.device());
  for (int r = 0; r < axis.ranks(); ++r) copy_part(AxisCopy::to_parts, all, parts, groups, k, axis, r);
  const Tensor mine = Tensor::empty({groups * axis.count(ranks.rank()), k}, all.dtype(), all.device());
  ranks.reduce_scatter(parts, mine, axis.elements(width));
  return mine;
}

std::vector<Tensor> cut_chunks(const Tensor& part, std::int64_t groups, const std::vector<Part>& chunks) {
  if (chunks.size() == 1) return {part.detach()};
  width_of(part, groups, count_of(chunks));
  const std::int64_t k = part.size(1), step = count_of(chunks) * k;
  std::vector<Tensor> cut;
  visit_chunks(chunks, [&](const Part& chunk, std::int64_t before) {
    const std::int64_t run = chunk.size() * k;
    cut.push_back(Tensor::empty({groups * chunk.size(), k}, part.dtype(), part.device()));
    copy_strided(cut.back(), {0, run}, part, {before * k, step}, groups, run);
  });
  return cut;
}

Tensor join_chunks(const std::vector<Tensor>& cut, std::int64_t groups, const std::vector<Part>& chunks) {
  if (chunks.size() == 1) return cut.front();
  const std::int64_t k = cut.front().size(1), step = count_of(chunks) * k;
  const Tensor part = Tensor::empty({groups * count_of(chunks), k}, cut.front().dtype(), cut.front().device());
  std::size_t which = 0;
  visit_chunks(chunks, [&](const Part& chunk, std::int64_t before) {
    const std::int64_t run = chunk.size() * k;
    copy_strided(part, {before * k, step}, cut[which++], {0, run}, groups, run);
  });
  return part;
}

}  // namespace isobar
