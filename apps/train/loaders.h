// The loaders of a run: batches of the training set, endlessly, and of the validation set, in order.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include "data/loader.h"
#include "data/upload.h"
#include "engine/keys.h"

namespace isobar {

// How samples are read, as a config gives it.
struct ReadingOptions {
  bool shuffle = true;
  std::int64_t num_data_workers = 0;

  KeyTable keys();
};

// How many samples an update has, as a config gives it.
struct BatchOptions {
  std::int64_t global_batch_size = 16;
  std::int64_t grad_accumulation = 1;

  KeyTable keys();

  // Samples of one forward pass, on each of `ranks` data-parallel ranks. Throws Error where these do not divide it.
  std::int64_t part(std::int64_t ranks = 1) const;
  void check_fits(const Dataset& train) const;  // Error where the training set has fewer samples than a batch
};

// Which of the data-parallel ranks this is: rank r of R reads samples r, r + R, ... of every batch; and the rows of
// every picture that it reads of them, where ranks hold bands (Task::band).
struct ReadingRank {
  std::int64_t rank = 0, ranks = 1;
  std::optional<RowBand> rows = {};
};

class Loaders {
 public:
  // The data sets must outlive this. Host buffers are pinned where the device is a GPU. Throws Error where a training
  // set is smaller than a batch.
  Loaders(const Dataset& train, const Dataset& valid, const ReadingOptions& reading, const BatchOptions& batch,
          std::int64_t seed, Device device, ReadingRank rank = {});

  Loader& valid() { return valid_loader_; }  // every sample of this rank, in order
  // Of the validation set, on the rank that has most.
  std::int64_t most_valid_batches() const;

  std::int64_t train_samples() const { return train_.samples(); }  // before incomplete batches are dropped
  std::int64_t valid_samples() const { return valid_.samples(); }
  std::int64_t iterations_per_epoch() const { return train_samples() / batch_.global_batch_size; }

  // The first samples of the validation set, as a batch on the host.
  Batch first_valid_samples(std::int64_t count) const;

  // Reads the first batch of each set, which refuses NaN and damaged files, and goes back to the beginning.
  void try_first_batches();

  // The next part of a training batch, BatchOptions::part samples, on the device: for what the current stream is given
  // from now on. Parts that would make an incomplete batch at an epoch's end are passed over.
  std::shared_ptr<const LoadedBatch> next();
  // Reads the part behind the one that next() gave, and begins to copy it to the device, beside what the current stream
  // does: to be called when the device has work. An error is thrown by next(). On the CPU, which has no other hands,
  // nothing happens.
  void read_ahead();

  // Of the training batches: what next() gives next.
  Cursor cursor() const { return ahead_ ? ahead_->at : train_loader_.cursor(); }
  void seek(Cursor cursor);
  std::int64_t parts_per_epoch() const { return train_loader_.batches_per_epoch(); }

 private:
  // What read_ahead() has begun.
  struct Ahead {
    Cursor at;
    std::unique_ptr<Upload> upload;
    std::exception_ptr error;
  };

  std::unique_ptr<Upload> upload_next();

  std::unique_ptr<Dataset> train_band_, valid_band_;  // where there are bands
  const Dataset& train_;
  const Dataset& valid_;
  BatchOptions batch_;
  ReadingRank rank_;
  Loader train_loader_, valid_loader_;
  Device device_;
  std::shared_ptr<const gpu::OwnedStream> uploads_;  // null on the CPU
  std::optional<Ahead> ahead_;
  std::unique_ptr<Upload> current_;  // its copies may still run
};

}  // namespace isobar
