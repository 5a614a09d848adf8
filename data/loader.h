// The prefetching loader: worker threads read the parts of batches of endless epochs ahead into a bounded set of
// buffers. Below a batch is a part of one where BatchCut cuts them: what a rank computes at once.
//
// Batches come in the sampler's order whatever the number of workers. Without workers the caller's thread reads.
// Workers share the samples of a batch, so that one slow batch does not wait for one thread. An error met while reading
// is thrown by the next() that would have returned that batch.
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

// Where the loader is: the batch that next() returns next.
struct Cursor {
  std::int64_t epoch = 0, batch = 0;
  friend bool operator==(const Cursor&, const Cursor&) = default;
};

struct LoadedBatch {
  Cursor at;
  std::vector<std::int64_t> samples;  // [B]; none where the part has fewer samples than there are ranks
  Batch tensors;                      // of Dataset::layout(), on the host: [B, ...]
  std::int64_t missing = 0;           // samples that the batch, over all parts and ranks, lacks of a whole one
};

struct LoaderOptions {
  BatchCut cut = {};                    // of the sampler's order, and whose rank's samples are read
  std::int64_t workers = 0;             // threads; 0: the caller's thread reads when asked
  std::string workers_key = "workers";  // the config key that `workers` came from, for messages
  std::int64_t read_ahead = 2;          // batches read ahead of the caller
  HostAllocator allocator = heap_memory;
};

class Loader {
 public:
  // The dataset must outlive the loader, and the sampler be of its samples. Error where there is no whole batch and
  // incomplete ones are left out.
  Loader(const Dataset& dataset, Sampler sampler, LoaderOptions options);
  ~Loader();  // stops the workers after the sample they are reading

  std::int64_t batches_per_epoch() const;  // the same on all ranks

  // The next batch. Its memory goes back to the loader when the last copy of the pointer is gone. At most two batches
  // may be alive: the caller may hold one while it asks for the next.
  std::shared_ptr<const LoadedBatch> next();

  Cursor cursor() const;
  // Goes on from there: forgets what was read ahead.
  void seek(Cursor cursor);
  // Goes on at the cursor with another view of the same samples, whose tensors may be others or of other shapes: a
  // longer window of time, a larger crop. What was read ahead is forgotten; a batch that the caller holds stays as it
  // is. The view must outlive the loader. Throws Error, and changes nothing, where it has another number of samples.
  void use(const Dataset& view);

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace isobar
