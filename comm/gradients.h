// Gradients among ranks: summed in buckets that start while the backward pass still runs.
//
// A bucket is a contiguous range of the flat gradients, the last parameters first, because their gradients are final
// first. It starts when all gradients in it are. The seed of the backward pass carries 1 / ranks, so that sums are
// means over the ranks' samples (docs/parallelism.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "comm/communicator.h"
#include "engine/parameters.h"
#include "engine/tape.h"

namespace isobar {

class GradientReducer {
 public:
  // Sums over `ranks`, in buckets of at least this many bytes (the last one of what is left). The parameters must
  // outlive it.
  GradientReducer(const Parameters& parameters, Communicator ranks, std::size_t bucket_bytes);

  // Before the last backward pass of a step: earlier parts of a batch only accumulate.
  void begin(Tape& tape);
  // After it, when every gradient holds something (Parameters::finish_gradients): starts the buckets that have not
  // started, in the order of the buffer. What follows on the current stream sees the sums.
  void finish();

  std::size_t buckets() const { return buckets_.size(); }
  // Buckets that the last backward pass started before it ended.
  std::size_t started_early() const { return started_early_; }

 private:
  struct Bucket {
    FlatRange range = {};
    int leaves = 0;   // parameters in it
    int waiting = 0;  // of them, those whose gradient is not final
    bool started = false;
  };

  void note(const Leaf& leaf);
  void start(const Bucket& bucket) const;

  const Parameters& parameters_;
  Communicator ranks_;
  std::vector<Bucket> buckets_;  // in the order of the buffer
  std::unordered_map<const Leaf*, std::size_t> bucket_of_;
  std::size_t started_early_ = 0;
};

}  // namespace isobar
