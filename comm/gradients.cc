#include "comm/gradients.h"

#include <algorithm>
#include <utility>

#include "comm/mesh.h"
#include "kernels/common/check.h"
#include "kernels/common/math.h"

namespace isobar {
namespace {

constexpr std::int64_t kSliceUnit = 64;  // elements that a slice begins at a multiple of: any vector load suits it

}  // namespace

GradientReducer::GradientReducer(Parameters& parameters, const Parallel& parallel, const ExchangeOptions& options)
    : parameters_(parameters), parallel_(parallel), is_sharded_(options.shard_optimizer), side_(side_device()) {
  ISOBAR_CHECK(!(options.off && options.shard_optimizer),
               "the optimizer cannot be sharded where gradients are not exchanged");
  if (!options.off) make_buckets(options.bucket_bytes);
  list_owned();
}

// Where the backward pass itself makes calls, which sums may not overlap with, they go to its stream: there is no other
// one on the CPU.
Device GradientReducer::side_device() const {
  return parallel_.model.size() == 1 || parallel_.world.may_overlap() ? parameters_.device() : Device{};
}

const Communicator& GradientReducer::group_of(Sharing sharing) const {
  return sharing == Sharing::copy_of_partial && parallel_.sequence ? parallel_.world : parallel_.tokens;
}

void GradientReducer::make_buckets(std::size_t bucket_bytes) {
  std::vector<Parameters::LeafRange> leaves = parameters_.leaf_ranges();
  std::erase_if(leaves, [](const Parameters::LeafRange& leaf) { return leaf.range.size() == 0; });  // others' shards
  std::ranges::sort(leaves, {}, [](const Parameters::LeafRange& leaf) { return leaf.range.first; });
  const std::size_t element = size_of(parameters_.dtype());
  std::vector<std::size_t> of_leaf(leaves.size());
  std::size_t left = leaves.size();  // those of this section and the ones before it
  for (std::size_t s = parameters_.sections().size(); s-- > 0;) {
    const auto& [sharing, section] = parameters_.sections()[s];
    std::int64_t begun = section.end;
    bool is_full = true;
    for (; left > 0 && leaves[left - 1].range.first >= section.first; --left) {
      if (is_full) buckets_.push_back({.sharing = sharing, .range = {begun, begun}});
      Bucket& bucket = buckets_.back();
      bucket.range.first = begun = leaves[left - 1].range.first;
      ++bucket.leaves;
      of_leaf[left - 1] = buckets_.size() - 1;
      is_full = static_cast<std::size_t>(bucket.range.size()) * element >= bucket_bytes;
    }
  }
  std::ranges::reverse(buckets_);
  for (std::size_t i = 0; i < leaves.size(); ++i) bucket_of_[leaves[i].leaf] = buckets_.size() - 1 - of_leaf[i];
  for (Bucket& bucket : buckets_) deal_out(bucket);
}

void GradientReducer::deal_out(Bucket& bucket) const {
  bucket.own = bucket.range;
  const Communicator& group = group_of(bucket.sharing);
  if (!is_sharded_ || group.size() == 1) return;
  const std::int64_t units = ceil_div(bucket.range.size(), kSliceUnit);
  for (int r = 0; r < group.size(); ++r) {
    const Part part = part_of(units, r, group.size());
    const FlatRange slice{std::min(bucket.range.first + part.begin * kSliceUnit, bucket.range.end),
                          std::min(bucket.range.first + part.end * kSliceUnit, bucket.range.end)};
    bucket.slices.push_back(slice.size());
    if (r == group.rank()) bucket.own = slice;
  }
}

// Among the ranks whose sums of squares are added up (add_up), how many have the same: each gives its share.
double GradientReducer::factor_of(Sharing sharing) const {
  const int tp = parallel_.tp.size(), parts = sharing == Sharing::shard ? tp : 1;
  const int added = is_sharded_ ? parallel_.world.size() / group_of(sharing).size() : tp;
  return static_cast<double>(parts) / added;
}

void GradientReducer::list_owned() {
  const auto own = [&](Sharing sharing, FlatRange range) {
    const double factor = factor_of(sharing);
    if (!owned_.empty() && owned_.back().range.end == range.first && owned_.back().factor == factor)
      owned_.back().range.end = range.end;
    else
      owned_.push_back({range, factor});
  };
  if (is_sharded_)
    for (const Bucket& bucket : buckets_) own(bucket.sharing, bucket.own);
  else
    for (const auto& [sharing, range] : parameters_.sections()) own(sharing, range);
  if (!add_up()) return;
  // Sums are added range by range. Shards of a model need not have equally many.
  auto most = static_cast<double>(owned_.size());
  parallel_.world.all_reduce({&most, 1}, Reduce::max);
  const std::int64_t end = parameters_.grads().numel();
  owned_.resize(static_cast<std::size_t>(most), {{end, end}});
}

AddUp GradientReducer::add_up() const {
  const Communicator& ranks = is_sharded_ ? parallel_.world : parallel_.tp;
  if (ranks.size() == 1) return {};
  return [ranks](const Tensor& sums) { ranks.all_reduce(sums); };
}

void GradientReducer::begin(Tape& tape) {
  for (Bucket& bucket : buckets_) {
    bucket.waiting = bucket.leaves;
    bucket.started = false;
  }
  started_early_ = 0;
  tape.on_ready([this](const Leaf& leaf) { note(leaf); });
}

void GradientReducer::note(const Leaf& leaf) {
  const auto found = bucket_of_.find(&leaf);
  if (found == bucket_of_.end()) return;  // of no parameter of this model
  Bucket& bucket = buckets_[found->second];
  ISOBAR_CHECK(bucket.waiting > 0, "gradients: a parameter's gradient was final twice in one backward pass");
  if (--bucket.waiting > 0) return;
  start(bucket);
  bucket.started = true;
  ++started_early_;
}

void GradientReducer::finish() {
  for (Bucket& bucket : buckets_)
    if (!std::exchange(bucket.started, true)) start(bucket);
  for (Pending& sums : pending_) sums.wait();
  pending_.clear();
}

void GradientReducer::start(const Bucket& bucket) {
  const Communicator& group = group_of(bucket.sharing);
  if (group.size() == 1) return;
  const Tensor& grads = parameters_.grads();
  const Tensor all = grads.slice(bucket.range.first, {bucket.range.size()});
  pending_.push_back(side_.run([&] {
    if (is_sharded_)
      group.reduce_scatter(all, grads.slice(bucket.own.first, {bucket.own.size()}), bucket.slices);
    else
      group.all_reduce(all);
  }));
}

// The weights travel in the dtype that they are updated in, and every rank rounds them all: a pass over its own memory
// takes less time than to send the rounded copies as well, and gives the same bits.
void GradientReducer::share_weights() const {
  if (!is_sharded_) return;
  const Tensor& weights = parameters_.weights();
  for (const Bucket& bucket : buckets_) {
    const Communicator& group = group_of(bucket.sharing);
    if (group.size() == 1) continue;
    group.all_gather(weights.slice(bucket.own.first, {bucket.own.size()}),
                     weights.slice(bucket.range.first, {bucket.range.size()}), bucket.slices);
  }
  parameters_.round_to_compute();
}

std::int64_t GradientReducer::fair_share() const {
  std::int64_t elements = 0;
  for (const auto& [sharing, range] : parameters_.sections()) {
    std::int64_t held = 0;
    for (const NamedParameter& p : parameters_.named())
      if (p.offset >= range.first && p.offset < range.end) held += p.numel();
    elements += ceil_div(held, is_sharded_ ? group_of(sharing).size() : 1);
  }
  return elements;
}

void GradientReducer::add_traffic(CommLedger& ledger) const {
  const auto element = static_cast<std::int64_t>(size_of(parameters_.dtype()));
  for (const Bucket& bucket : buckets_) {
    const Communicator& group = group_of(bucket.sharing);
    const std::int64_t bytes = bucket.range.size() * element;
    if (group.size() == 1) continue;
    ledger.add(group.name(), is_sharded_ ? Verb::reduce_scatter : Verb::all_reduce, 1, bytes);
    if (is_sharded_) ledger.add(group.name(), Verb::all_gather, 1, bytes);
  }
  const Communicator& norm = is_sharded_ ? parallel_.world : parallel_.tp;
  const auto sums = static_cast<std::int64_t>(owned_.size() * sizeof(double));
  if (norm.size() > 1) ledger.add(norm.name(), Verb::all_reduce, 1, sums);
}

}  // namespace isobar
