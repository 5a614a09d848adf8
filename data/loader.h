// The prefetching loader: worker threads read the batches of endless epochs ahead into a bounded set of buffers.
//
// Batches come in the sampler's order whatever the number of workers. Without workers the caller's thread reads.
// Workers share the samples of a batch, so that one slow batch does not wait for one thread. An error met while reading
// is thrown by the next() that would have returned that batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/era5/era5.h"
#include "data/sampler.h"

namespace isobar {

// Where the loader is: the batch that next() returns next.
struct Cursor {
  std::int64_t epoch = 0, batch = 0;
  friend bool operator==(const Cursor&, const Cursor&) = default;
};

struct Batch {
  Cursor at;
  std::int64_t size = 0;              // samples, B
  float* input = nullptr;             // [B, C, H, W] as the files hold them, not normalised
  float* target = nullptr;            // [B, C, H, W]
  std::vector<double> time_features;  // [B, 4] of the input steps (StepTime::features); empty unless asked for
  std::vector<std::int64_t> samples;  // [B] the input steps
};

// Where the fields of batches live: ordinary memory, or pinned memory that the caller provides.
struct BufferAllocator {
  std::function<float*(std::size_t values)> allocate;
  std::function<void(float*)> release;
};
BufferAllocator heap_allocator();

struct LoaderOptions {
  std::int64_t batch_size = 1;  // samples of this rank in a batch
  std::int64_t workers = 0;     // threads; 0: the caller's thread reads when asked
  std::int64_t read_ahead = 2;  // batches read ahead of the caller
  bool drop_last = true;        // training: only whole batches. Else the last batch of an epoch may be smaller
  bool time_features = false;
  BufferAllocator allocator = heap_allocator();
};

class Loader {
 public:
  // The dataset must outlive the loader. A batch (over all ranks) larger than the samples is an error with drop_last.
  Loader(const Era5Dataset& dataset, Sampler sampler, LoaderOptions options);
  ~Loader();  // stops the workers after the sample they are reading

  std::int64_t batches_per_epoch() const;
  std::int64_t samples_per_epoch() const;  // of this rank, dropped ones left out

  // The next batch. Its buffer goes back to the loader when the last copy of the pointer is gone; the caller may hold
  // one batch while it asks for the next, and no more.
  std::shared_ptr<const Batch> next();

  Cursor cursor() const;
  // Goes on from there: forgets what was read ahead.
  void seek(Cursor cursor);

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace isobar
