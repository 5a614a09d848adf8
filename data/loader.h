// The prefetching loader: worker threads read the batches of endless epochs ahead into a bounded set of buffers.
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
  std::vector<std::int64_t> samples;  // [B]
  Batch tensors;                      // of Dataset::layout(), on the host: [B, ...]
};

struct LoaderOptions {
  std::int64_t batch_size = 1;          // samples of this rank in a batch
  std::int64_t workers = 0;             // threads; 0: the caller's thread reads when asked
  std::string workers_key = "workers";  // the config key that `workers` came from, for messages
  std::int64_t read_ahead = 2;          // batches read ahead of the caller
  bool drop_last = true;                // training: only whole batches. Else the last batch of an epoch may be smaller
  HostAllocator allocator = heap_memory;
};

class Loader {
 public:
  // The dataset must outlive the loader, and the sampler be of its samples. A batch (over all ranks) larger than the
  // samples is an error with drop_last.
  Loader(const Dataset& dataset, Sampler sampler, LoaderOptions options);
  ~Loader();  // stops the workers after the sample they are reading

  std::int64_t batches_per_epoch() const;

  // The next batch. Its memory goes back to the loader when the last copy of the pointer is gone. At most two batches
  // may be alive: the caller may hold one while it asks for the next.
  std::shared_ptr<const LoadedBatch> next();

  Cursor cursor() const;
  // Goes on from there: forgets what was read ahead.
  void seek(Cursor cursor);

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace isobar
