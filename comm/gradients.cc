#include "comm/gradients.h"

#include <algorithm>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {

GradientReducer::GradientReducer(const Parameters& parameters, Communicator ranks, std::size_t bucket_bytes)
    : parameters_(parameters), ranks_(std::move(ranks)) {
  std::vector<Parameters::LeafRange> ranges = parameters.leaf_ranges();
  std::ranges::sort(ranges, {}, [](const Parameters::LeafRange& leaf) { return leaf.range.first; });
  const std::size_t element = size_of(parameters.dtype());
  std::int64_t end = parameters.grads().numel();
  std::vector<std::size_t> of_range(ranges.size());
  for (std::size_t i = ranges.size(); i-- > 0;) {
    if (buckets_.empty() || static_cast<std::size_t>(buckets_.back().range.size()) * element >= bucket_bytes)
      buckets_.push_back({.range = {end, end}});
    Bucket& bucket = buckets_.back();
    bucket.range.first = end = ranges[i].range.first;
    ++bucket.leaves;
    of_range[i] = buckets_.size() - 1;
  }
  std::ranges::reverse(buckets_);
  for (std::size_t i = 0; i < ranges.size(); ++i) bucket_of_[ranges[i].leaf] = buckets_.size() - 1 - of_range[i];
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
}

void GradientReducer::start(const Bucket& bucket) const {
  ranks_.all_reduce(parameters_.grads().slice(bucket.range.first, {bucket.range.size()}));
}

}  // namespace isobar
