// Sums gradients over the ranks, in buckets, while the backward pass still runs. With a sharded optimizer (ZeRO-1) a
// rank gets the sums of its own slices only.
//
// A bucket (Parameters::buckets) is a contiguous range of the flat gradients within one section of the parameters
// (Sharing). The last parameters come first, because their gradients are final first. The sum of a bucket starts when
// all its gradients are final, on a stream beside the current one. The ranks that it is summed over:
//
//   shard             dp x cp: the ranks that see other samples or tokens
//   copy              dp x cp x tp, in one call; only the first tp rank's gradient counts
//   copy_of_partial   the same; with sequence parallel a rank has the gradient of its own rows, and all count
//
// Of a pipeline these are ranks of one stage. A tied parameter, which the first and the last stage hold, has parts of
// its gradient on both: they are summed over the ranks of both stages, in one call too, when both have all of theirs.
//
// The seed of the backward pass is the weight of the rank's part divided by that of the whole batch, so that sums are
// means (docs/parallelism.md).
//
// With a sharded optimizer each rank of a bucket has an equal slice of it: it gets the sums of the slice
// (reduce_scatter), holds its moments and updates it; then all ranks gather the weights (all_gather). If only some of
// the ranks shard the optimizer, the sums are added over the replicas of a slice in between (all_reduce).
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
  // Every rank of the world makes one. The parameters must outlive it, and must be laid out by parallel.bucket_plan().
  GradientReducer(Parameters& parameters, const Parallel& parallel);

  // Call it before the last backward pass of a step; the passes of earlier parts only accumulate.
  void begin(Tape& tape);
  // Call it instead of begin() if the last part is empty on some ranks: finish() then starts all buckets.
  void begin_after_backward();
  // Of a network whose last part is passed backward in several tapes: after begin_after_backward(), before each.
  void watch(Tape& tape);
  // Call it after the backward pass, when every gradient has a value (Parameters::finish_gradients). Starts the
  // remaining buckets, in the order of the buffer. Later work on the current stream sees the sums: all of them, or with
  // a sharded optimizer those of owned().
  void finish();

  // For the optimizer of this rank. owned(): the ranges that it updates; their number is the same on all ranks, and
  // some may be empty. add_up(): adds the sums of squares over the ranks, so that every rank has the norm of the whole
  // model.
  const std::vector<OwnedRange>& owned() const { return owned_; }
  SumOverRanks add_up() const;

  // Call it after an update. In the order of the current stream, every rank gets the weights that others have updated,
  // and rounds their 16-bit copies. Does nothing if the optimizer is not sharded.
  void share_weights() const;

  // The number of parameters that a rank updates if all slices are equal; without padding.
  std::int64_t fair_share() const;

  std::size_t buckets() const { return buckets_.size(); }
  // Buckets that were started before the last backward pass ended.
  std::size_t started_early() const { return started_early_; }

 private:
  struct Bucket {
    Sharing sharing = Sharing::copy;
    bool tied = false;
    FlatRange range = {};
    FlatRange own = {};  // this rank's slice; the whole bucket if it is not sharded
    int leaves = 0;      // parameters in it
    int waiting = 0;     // those whose gradient is not final yet
    bool started = false;
  };

  Device side_device() const;
  void list_buckets();
  void list_owned();
  double factor_of(Sharing sharing, bool is_tied) const;
  void note(const Leaf& leaf);
  void start(const Bucket& bucket);

  Parameters& parameters_;
  const Parallel parallel_;
  std::vector<Bucket> buckets_;  // in the order of the buffer
  std::unordered_map<const Leaf*, std::size_t> bucket_of_;
  std::vector<OwnedRange> owned_;
  std::size_t started_early_ = 0;
  SideStream side_;
  std::vector<Pending> pending_;  // sums that run
};

}  // namespace isobar
