#include "comm/sharded_axis.h"

#include "comm/mesh.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// Elements of [A·n, K] at one index of the axis, over all A groups: A·K.
std::int64_t width_of(const Tensor& x, std::int64_t groups, std::int64_t count) {
  ISOBAR_CHECK(x.shape().size() == 2 && x.size(0) == groups * count, "a dealt axis: ", to_string(x.shape()),
               " are not ", groups, " groups of ", count, " rows");
  return groups * x.size(1);
}

}  // namespace

ShardedAxis::ShardedAxis(std::int64_t total, int ranks, std::int64_t unit) : total_(total) {
  ISOBAR_CHECK(unit >= 1 && total % unit == 0, "a dealt axis: ", total, " indices are no whole units of ", unit);
  for (int r = 0; r < ranks; ++r) {
    const Part part = part_of(total / unit, r, ranks);
    counts_.push_back(part.size() * unit);
    firsts_.push_back(part.begin * unit);
  }
}

ShardedAxis ShardedAxis::cut_at(std::int64_t total) const {
  ISOBAR_CHECK(total > firsts_.back() && total <= total_, "a dealt axis: ", total, " indices of ", total_,
               " leave none for the last of ", ranks(), " ranks");
  ShardedAxis cut = *this;
  cut.total_ = total;
  cut.counts_.back() = total - firsts_.back();
  return cut;
}

std::vector<std::int64_t> ShardedAxis::elements(std::int64_t width) const {
  std::vector<std::int64_t> elements;
  for (const std::int64_t count : counts_) elements.push_back(count * width);
  return elements;
}

Tensor gather_axis(const Tensor& mine, std::int64_t groups, const ShardedAxis& axis, const Communicator& ranks) {
  const std::int64_t width = width_of(mine, groups, axis.count(ranks.rank())), k = mine.size(1);
  if (axis.ranks() == 1) return mine.detach();
  const Tensor parts = Tensor::empty({groups * axis.total(), k}, mine.dtype(), mine.device());
  ranks.all_gather(mine, parts, axis.elements(width));
  const Tensor all = Tensor::empty(parts.shape(), mine.dtype(), mine.device());
  for (int r = 0; r < axis.ranks(); ++r) {
    const std::int64_t run = axis.count(r) * k;
    copy_strided(all, {axis.first(r) * k, axis.total() * k}, parts, {axis.first(r) * width, run}, groups, run);
  }
  return all;
}

Tensor reduce_scatter_axis(const Tensor& all, std::int64_t groups, const ShardedAxis& axis, const Communicator& ranks) {
  const std::int64_t width = width_of(all, groups, axis.total()), k = all.size(1);
  if (axis.ranks() == 1) return all.detach();
  const Tensor parts = Tensor::empty(all.shape(), all.dtype(), all.device());
  for (int r = 0; r < axis.ranks(); ++r) {
    const std::int64_t run = axis.count(r) * k;
    copy_strided(parts, {axis.first(r) * width, run}, all, {axis.first(r) * k, axis.total() * k}, groups, run);
  }
  const Tensor mine = Tensor::empty({groups * axis.count(ranks.rank()), k}, all.dtype(), all.device());
  ranks.reduce_scatter(parts, mine, axis.elements(width));
  return mine;
}

}  // namespace isobar
