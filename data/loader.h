// The prefetching loader: worker threads read batches ahead, epoch after epoch without end, into a bounded set of
// buffers. In this file a batch is one part of a batch if BatchCut divides batches: what a rank computes at once.
//
// Batches come in the sampler's order, whatever the number of workers. Without workers the caller's thread reads.
// Workers share the samples of a batch, so that a batch with slow samples does not wait for one thread. An error in
// reading is thrown by the next() that would have returned that batch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/batch_cut.h"
#include "data/dataset.h"
#include "data/sampler.h"

namespace isobar {

// The position of the loader: the batch that next() returns next.
struct Cursor {
  std::int64_t epoch = 0, batch = 0;
  friend bool operator==(const Cursor&, const Cursor&) = default;
};

struct LoadedBatch {
  Cursor at;
  // [B]; empty if the part has fewer samples than there are ranks
  std::vector<std::int64_t> samples;
  // Of Dataset::layout(), on the host: [B, ...]
  Batch tensors;
  // Samples that an incomplete batch lacks, over all parts and ranks
  std::int64_t missing = 0;
};

struct LoaderOptions {
  BatchCut cut = {};                    // division of the sampler's order, and this rank
  std::int64_t workers = 0;             // threads; 0: the caller's thread reads on request
  std::string workers_key = "workers";  // the config key of `workers`, for messages
  std::int64_t read_ahead = 2;          // batches read ahead of the caller
  HostAllocator allocator = heap_memory;
};

class Loader {
 public:
  // The dataset must outlive the loader; the sampler must have its number of samples. Error if there is no complete
  // batch and incomplete ones are dropped.
  Loader(const Dataset& dataset, Sampler sampler, LoaderOptions options);
  ~Loader();  // stops the workers; each finishes its current sample

  std::int64_t batches_per_epoch() const;  // the same on all ranks

  // The next batch. Its memory returns to the loader when the last copy of the pointer is destroyed. At most two
  // batches may exist: the caller may hold one while it asks for the next.
  std::shared_ptr<const LoadedBatch> next();

  Cursor cursor() const;
  // Continues from that position; discards what was read ahead.
  void seek(Cursor cursor);
  // Continues at the cursor with another view of the same samples, whose tensors may differ in number or shape: a
  // longer window of time, a larger crop. Discards what was read ahead; a batch that the caller holds stays valid. The
  // view must outlive the loader. Throws Error, and changes nothing, if it has another number of samples.
  void use(const Dataset& view);

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace isobar
