#include "comm/gradients.h"

#include <algorithm>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/common/math.h"
#include "kernels/common/run.h"
#include "kernels/elementwise.h"

namespace isobar {

GradientReducer::GradientReducer(Parameters& parameters, const Parallel& parallel)
    : parameters_(parameters), parallel_(parallel), side_(side_device()) {
  if (!parallel.exchange.off) list_buckets();
  list_owned();
}

// If the backward pass makes calls itself, and calls must not overlap, the sums go to the stream of the pass: the CPU's
// side stream is the current one.
Device GradientReducer::side_device() const {
  const bool passes_call = parallel_.model.size() > 1 || parallel_.pp.size() > 1;
  return !passes_call || parallel_.world.may_overlap() ? parameters_.device() : Device{};
}

void GradientReducer::list_buckets() {
  for (const Parameters::Bucket& made : parameters_.buckets()) {
    const Communicator& scattered = parallel_.gradient_groups(made.sharing, made.tied).scattered;
    const std::int64_t slice = made.range.size() / scattered.size();
    ISOBAR_CHECK(slice * scattered.size() == made.range.size(), "gradients: a bucket of ", made.range.size(),
                 " elements has no equal slices for ", scattered.size(), " ranks");
    const std::int64_t first = made.range.first + slice * scattered.rank();
    for (const int handle : made.handles) bucket_of_[parameters_.get(handle).leaf().get()] = buckets_.size();
    buckets_.push_back({.sharing = made.sharing,
                        .tied = made.tied,
                        .range = made.range,
                        .own = {first, first + slice},
                        .leaves = static_cast<int>(made.handles.size())});
  }
}

// A factor for the sums of squares (add_up): if n ranks add the same numbers, it is 1/n. If the optimizer is not
// sharded, all ranks of dp x cp have the same sums, and only those of the first one count; of a tied parameter those of
// two.
double GradientReducer::factor_of(Sharing sharing, bool is_tied) const {
  if (!add_up()) return 1;
  const int tp = parallel_.tp.size(), parts = sharing == Sharing::shard ? tp : 1, ends = is_tied ? 2 : 1;
  if (!parallel_.exchange.shards_optimizer()) return parallel_.tokens.rank() == 0 ? 1.0 * parts / (tp * ends) : 0;
  const Parallel::GradientGroups groups = parallel_.gradient_groups(sharing, is_tied);
  return static_cast<double>(parts) / (groups.holders.size() / groups.scattered.size());
}

void GradientReducer::list_owned() {
  const auto own = [&](Sharing sharing, bool is_tied, FlatRange range) {
    const double factor = factor_of(sharing, is_tied);
    if (!owned_.empty() && owned_.back().range.end == range.first && owned_.back().factor == factor)
      owned_.back().range.end = range.end;
    else
      owned_.push_back({range, factor});
  };
  if (parallel_.exchange.shards_optimizer())
    for (const Bucket& bucket : buckets_) own(bucket.sharing, bucket.tied, bucket.own);
  else
    for (const auto& [sharing, range, frozen, tied] : parameters_.sections())
      if (!frozen) own(sharing, tied, range);
  if (!add_up()) return;
  // Sums are added range by range, and the parts of a model may have different numbers of ranges.
  auto most = static_cast<double>(owned_.size());
  parallel_.world.all_reduce({&most, 1}, Reduce::max);
  const std::int64_t end = parameters_.grads().numel();
  owned_.resize(static_cast<std::size_t>(most), {{end, end}});
}

// Adds over the world, although fewer ranks may hold the whole model: different groups may add the same numbers in
// different orders, and replicas would clip by factors that differ in the last bit.
SumOverRanks GradientReducer::add_up() const {
  if (!parallel_.exchange.shards_optimizer() && parallel_.tp.size() == 1 && parallel_.pp.size() == 1) return {};
  return [ranks = parallel_.world](const Tensor& sums) { ranks.all_reduce(sums); };
}

void GradientReducer::begin_after_backward() {
  for (Bucket& bucket : buckets_) {
    bucket.waiting = bucket.leaves;
    bucket.started = false;
  }
  started_early_ = 0;
}

void GradientReducer::begin(Tape& tape) {
  begin_after_backward();
  watch(tape);
}

void GradientReducer::watch(Tape& tape) {
  tape.on_ready([this](const Leaf& leaf) { note(leaf); });
}

void GradientReducer::note(const Leaf& leaf) {
  const auto found = bucket_of_.find(&leaf);
  if (found == bucket_of_.end()) return;  // of no parameter of this model
  Bucket& bucket = buckets_[found->second];
  ISOBAR_CHECK(bucket.waiting > 0, "gradients: a parameter's gradient was final twice in one backward pass");
  if (--bucket.waiting > 0) return;
  if (bucket.tied) return;  // the other end of the pipeline still waits for what the passes of this one make
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
  const Parallel::GradientGroups groups = parallel_.gradient_groups(bucket.sharing, bucket.tied);
  const Communicator &scattered = groups.scattered, &summed = groups.summed;
  if (scattered.size() == 1 && summed.size() == 1) return;
  const Tensor& grads = parameters_.grads();
  const Tensor all = grads.slice(bucket.range.first, {bucket.range.size()});
  const Tensor own = grads.slice(bucket.own.first, {bucket.own.size()});
  // Adding -0 changes no number, not even the sign of a zero.
  const bool is_left_out = parallel_.is_copy(bucket.sharing) && groups.over_tp;
  pending_.push_back(side_.run([&] {
    if (is_left_out)
      ISOBAR_RUN(all.device(), fill, {.n = all.numel(), .dtype = all.dtype(), .value = -0.0, .y = all.data()},
                 current_stream());
    if (scattered.size() > 1) scattered.reduce_scatter(all, own);
    if (summed.size() > 1) summed.all_reduce(own);
  }));
}

// Weights are sent in the dtype in which they are updated, and every rank rounds all of them. That takes less time than
// sending the rounded copies too, and gives the same bits.
void GradientReducer::share_weights() const {
  if (!parallel_.exchange.shards_optimizer()) return;
  const Tensor& weights = parameters_.weights();
  for (const Bucket& bucket : buckets_) {
    const Communicator& scattered = parallel_.gradient_groups(bucket.sharing, bucket.tied).scattered;
    if (scattered.size() > 1)
      scattered.all_gather(weights.slice(bucket.own.first, {bucket.own.size()}),
                           weights.slice(bucket.range.first, {bucket.range.size()}));
  }
  parameters_.round_to_compute();
}

std::int64_t GradientReducer::fair_share() const {
  std::int64_t elements = 0;
  for (const auto& [sharing, range, frozen, tied] : parameters_.sections()) {
    if (frozen) continue;
    std::int64_t held = 0;
    for (const NamedParameter& p : parameters_.named())
      if (p.offset >= range.first && p.offset < range.end) held += p.numel();
    elements += ceil_div(held, parallel_.gradient_groups(sharing, tied).scattered.size());
  }
  return elements;
}

}  // namespace isobar
