// The batch of one update, cut into parts that are passed through the network one by one.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "apps/train/loaders.h"
#include "comm/communicator.h"
#include "models/task.h"

namespace isobar {

// Gives the batch of the next part, on the task's device or on the host.
using NextBatch = std::function<std::shared_ptr<const LoadedBatch>()>;

struct StepPart {
  std::shared_ptr<const LoadedBatch> loaded;  // of this rank; may have no sample
  // The weight of the whole batch, over all parts and data ranks, divided by that of this part (Task::weight); with
  // LossMean::micro_batches the number of parts on all data ranks.
  // Infinite if nothing counts in this part.
  double share = 1;
};

// The parts of a batch in their order. If weights count samples, the weight of the whole is known with the first part;
// else all parts are taken before the first one is handed out, and the ranks of `dp` add up their weights.
class StepParts {
 public:
  // Takes the first part. Error naming the iteration if nothing counts in the batch. `next` must outlive it.
  StepParts(const Task& task, const BatchOptions& batch, const Communicator& dp, std::int64_t iteration,
            const NextBatch& next);

  StepPart next();
  // Samples of the batch, on all ranks, that count nothing; 0 unless weights are numbers of samples that count.
  std::int64_t uncounted() const { return task_.describe_uncounted().empty() ? 0 : samples_ - std::llround(whole_); }
  std::int64_t missing() const { return batch_.global_batch_size - samples_; }  // samples, of a whole batch
  // Parts are dealt from the first rank on, so the last part of an incomplete batch may reach some ranks only.
  bool all_ranks_have_last() const;

 private:
  struct Queued {
    std::shared_ptr<const LoadedBatch> loaded;
    double weight = 0;
  };
  void take_one();

  const Task& task_;
  const BatchOptions& batch_;
  const Communicator& dp_;
  const NextBatch& next_;
  std::int64_t left_;  // parts that were not taken yet
  std::int64_t samples_ = 0;
  double whole_ = 0;  // the weight of the batch, over all ranks
  std::deque<Queued> queue_;
};

}  // namespace isobar
