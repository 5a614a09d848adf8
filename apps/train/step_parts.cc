#include "apps/train/step_parts.h"

#include <limits>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {

StepParts::StepParts(const Task& task, const BatchOptions& batch, const Communicator& dp, std::int64_t iteration,
                     const NextBatch& next)
    : task_(task), batch_(batch), dp_(dp), next_(next), left_(batch.grad_accumulation) {
  take_one();
  samples_ = batch.global_batch_size - queue_.front().loaded->missing;
  whole_ = static_cast<double>(samples_);
  if (task.counts_samples()) return;
  while (left_ > 0) take_one();
  whole_ = 0;
  for (const Queued& part : queue_) whole_ += part.weight;
  dp.all_reduce({&whole_, 1});
  ISOBAR_CHECK(whole_ > 0, "iteration ", iteration, ": nothing counts in this batch of ", samples_,
               samples_ == 1 ? " sample" : " samples", "; a larger global_batch_size helps, or to leave them out");
}

StepPart StepParts::next() {
  if (queue_.empty()) take_one();
  Queued part = std::move(queue_.front());
  queue_.pop_front();
  if (part.weight == 0) return {std::move(part.loaded), std::numeric_limits<double>::infinity()};
  const bool is_even = batch_.loss_mean == LossMean::micro_batches;
  return {std::move(part.loaded),
          is_even ? static_cast<double>(batch_.grad_accumulation * dp_.size()) : whole_ / part.weight};
}

bool StepParts::all_ranks_have_last() const {
  const BatchCut cut = batch_.cut();
  return part_of(samples_, cut.parts - 1, cut.parts).size() >= dp_.size();
}

void StepParts::take_one() {
  std::shared_ptr<const LoadedBatch> loaded = next_();
  const double weight = task_.weight(loaded->tensors);
  queue_.push_back({std::move(loaded), weight});
  --left_;
}

}  // namespace isobar
