// The loaders of a run: batches of the training set, endlessly, and of a set that is judged, in order.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include "data/batch_cut.h"
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

// What becomes of the samples of an epoch that make no whole batch.
enum class IncompleteBatch : std::uint8_t { drop, keep };

template <>
struct EnumNames<IncompleteBatch> {
  static constexpr std::array names{"drop", "keep"};
};

// How many samples an update has, as a config gives it.
struct BatchOptions {
  std::int64_t global_batch_size = 16;
  std::int64_t grad_accumulation = 1;
  IncompleteBatch incomplete_batch = IncompleteBatch::drop;

  KeyTable keys();

  // How the order of the training samples is cut, as rank `rank` of `ranks` data-parallel ones reads it. Throws Error
  // where a part has fewer samples than there are ranks: some would have nothing to do.
  BatchCut cut(std::int64_t rank = 0, std::int64_t ranks = 1) const;
  // Samples that one of so many data-parallel ranks computes at once, the most that one has; of all of them, with 1.
  std::int64_t at_once(std::int64_t ranks = 1) const;
  std::int64_t iterations_per_epoch(std::int64_t samples) const { return cut().batches(samples); }
  void check_fits(const Dataset& train) const;  // Error where the training set has fewer samples than a batch
};

// Which of the data-parallel ranks this is (BatchCut); and the rows of every picture that it reads, where ranks hold
// bands (Task::band).
struct ReadingRank {
  std::int64_t rank = 0, ranks = 1;
  std::optional<RowBand> rows = {};
};

// A set that is judged: every sample of this rank once, in order. All ranks have as many batches; the last one may be
// empty on some.
class JudgedSet {
 public:
  // at_once: samples of a batch, of all ranks together. `set` must outlive this. Host buffers are pinned where the
  // device is a GPU.
  JudgedSet(const Dataset& set, std::int64_t at_once, const ReadingOptions& reading, std::int64_t seed, Device device,
            const ReadingRank& rank = {});

  Loader& loader() { return loader_; }
  std::int64_t samples() const { return set_.samples(); }  // of all ranks

  // The first samples, as a batch on the host.
  Batch first_samples(std::int64_t count) const;
  // Reads the first batch, which refuses NaN and damaged files, and goes back to the beginning.
  void try_first_batch();

 private:
  std::unique_ptr<Dataset> band_;  // where there is one
  const Dataset& set_;
  std::uint64_t seed_;
  Loader loader_;
};

class Loaders {
 public:
  // The data sets must outlive this. Host buffers are pinned where the device is a GPU. Throws Error where a training
  // set is smaller than a batch.
  Loaders(const Dataset& train, const Dataset& valid, const ReadingOptions& reading, const BatchOptions& batch,
          std::int64_t seed, Device device, ReadingRank rank = {});

  // In batches of a part of a training batch.
  JudgedSet& valid() { return valid_; }
  // Another set, in the same way. It must outlive what is returned.
  JudgedSet judged(const Dataset& set) const;

  std::int64_t train_samples() const { return train_.samples(); }  // incomplete batches that are dropped included
  std::int64_t iterations_per_epoch() const { return parts_per_epoch() / batch_.grad_accumulation; }

  // Reads the first batch of each set, which refuses NaN and damaged files, and goes back to the beginning.
  void try_first_batches();

  // The next part of a training batch, on the device: for what the current stream is given from now on.
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

  std::unique_ptr<Dataset> train_band_;  // where there is one
  const Dataset& train_;
  ReadingOptions reading_;
  BatchOptions batch_;
  std::int64_t seed_;
  Device device_;
  ReadingRank rank_;
  Loader train_loader_;
  JudgedSet valid_;
  std::shared_ptr<const gpu::OwnedStream> uploads_;  // null on the CPU
  std::optional<Ahead> ahead_;
  std::unique_ptr<Upload> current_;  // its copies may still run
};

}  // namespace isobar
