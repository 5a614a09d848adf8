// Gradients among ranks: summed in buckets that start while the backward pass still runs, and, where the optimizer is
// sharded (ZeRO-1), only as far as each rank updates.
//
// A bucket (Parameters::buckets) is a contiguous range of the flat gradients, within one section of the parameters
// (Sharing), the last parameters first, because their gradients are final first. It starts when all gradients in it
// are, on a stream beside the current one. What it is summed over:
//
//   shard             the ranks that see other samples or tokens: dp x cp
//   copy              the same and tp, in one call for all ranks that hold it; only the first tp rank's gradient counts
//   copy_of_partial   the same; with sequence parallel, where a rank computes the gradient of its own rows, all count
//
// The seed of the backward pass carries the share that its part's weight has of the whole batch's, so that sums are
// means (docs/parallelism.md).
//
// With a sharded optimizer the ranks of a bucket deal it out: each gets the sums of its slice only (reduce_scatter),
// has moments for it, updates it, and then the weights are put together again (all_gather). Slices are equal. Where
// only some of the ranks deal it out, their sums are added over the replicas of a slice in between (all_reduce).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "comm/parallel.h"
#include "engine/optimizer.h"
#include "engine/parameters.h"
#include "engine/stream.h"
#include "engine/tape.h"

namespace isobar {

class GradientReducer {
 public:
  // Every rank of the world makes one. The parameters must outlive it, and are laid out by parallel.bucket_plan().
  GradientReducer(Parameters& parameters, const Parallel& parallel);

  // Before the last backward pass of a step: earlier parts of a batch only accumulate.
  void begin(Tape& tape);
  // Instead of begin(), where some of the ranks have nothing to compute last: finish() starts all buckets.
  void begin_after_backward();
  // After it, when every gradient holds something (Parameters::finish_gradients): starts the buckets that have not
  // started, in the order of the buffer. What follows on the current stream sees the sums: all of them, or with a
  // sharded optimizer those of owned().
  void finish();

  // For the optimizer of this rank: what it updates, and what adds up the sums of squares over the ranks, so that every
  // rank has the norm of the whole model. As many ranges on every rank; some may be empty.
  const std::vector<OwnedRange>& owned() const { return owned_; }
  SumOverRanks add_up() const;

  // After an update, in the order of the current stream: every rank has the weights, and their 16-bit copies, that
  // others have updated. Nothing to do where the optimizer is not sharded.
  void share_weights() const;

  // Parameters that this rank updates, were every slice as large as the other ranks'; without padding.
  std::int64_t fair_share() const;

  std::size_t buckets() const { return buckets_.size(); }
  // Buckets that the last backward pass started before it ended.
  std::size_t started_early() const { return started_early_; }

 private:
  struct Bucket {
    Sharing sharing = Sharing::copy;
    FlatRange range = {};
    FlatRange own = {};  // this rank's slice, or all of it
    int leaves = 0;      // parameters in it
    int waiting = 0;     // of these, those whose gradient is not final
    bool started = false;
  };

  Device side_device() const;
  void list_buckets();
  void list_owned();
  double factor_of(Sharing sharing) const;
  void note(const Leaf& leaf);
  void start(const Bucket& bucket);

  Parameters& parameters_;
  const Parallel parallel_;
  std::vector<Bucket> buckets_;  // in the order of the buffer
  std::unordered_map<const Leaf*, std::size_t> bucket_of_;
  std::vector<OwnedRange> owned_;
  std::size_t started_early_ = 0;
  SideStream side_;
  std::vector<Pending> pending_;  // sums under way
};

}  // namespace isobar
