// The loaders of a run: of the training set, endless, and of a set that is evaluated, in order.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "apps/train/batch_ramp.h"
#include "data/batch_cut.h"
#include "data/loader.h"
#include "data/upload.h"
#include "engine/keys.h"

namespace isobar {

// How samples are read: options of the config.
struct ReadingOptions {
  bool shuffle = true;
  std::int64_t num_data_workers = 0;

  KeyTable keys();
};

// What happens to the samples at the end of an epoch that do not fill a batch.
enum class IncompleteBatch : std::uint8_t { drop, keep };

template <>
struct EnumNames<IncompleteBatch> {
  static constexpr std::array names{"drop", "keep"};
};

// What the loss of a batch is the mean of: of all its targets, or of the means of its parts (micro-batches) on every
// data-parallel rank, as Megatron-LM has it.
enum class LossMean : std::uint8_t { targets, micro_batches };

template <>
struct EnumNames<LossMean> {
  static constexpr std::array names{"targets", "micro_batches"};
};

// The number of samples of an update: options of the config.
struct BatchOptions {
  std::int64_t global_batch_size = 16;
  std::int64_t grad_accumulation = 1;
  IncompleteBatch incomplete_batch = IncompleteBatch::drop;
  LossMean loss_mean = LossMean::targets;
  std::optional<std::vector<double>> batch_rampup = {};  // start, increment, samples; null: global_batch_size, always

  KeyTable keys();

  BatchRamp ramp() const;
  // The same for one iteration: its batch, and as many parts as that has.
  BatchOptions after(std::int64_t iterations) const;

  // How the order of the training samples is split into batches and parts, for rank `rank` of `ranks` data-parallel
  // ranks. Throws Error if a part has fewer samples than there are ranks: some ranks would have nothing to do.
  BatchCut cut(std::int64_t rank = 0, std::int64_t ranks = 1) const;
  // Max number of samples that one of `ranks` data-parallel ranks computes at once; with 1, that of all ranks together.
  std::int64_t at_once(std::int64_t ranks = 1) const;
  std::int64_t iterations_per_epoch(std::int64_t samples) const { return cut().batches(samples); }
  // Error if the training set has fewer samples than a batch
  void check_fits(const Dataset& train) const;

 private:
  void check_ramp(const KeyOrigins& origins) const;
};

// Which data-parallel rank this is (BatchCut), and which rows of every picture it reads if ranks hold bands
// (Task::band).
struct ReadingRank {
  std::int64_t rank = 0, ranks = 1;
  std::optional<RowBand> rows = {};
};

// A set that is evaluated: every sample of this rank once, in order. All ranks have the same number of batches; the
// last batch may be empty on some ranks.
class EvaluationSet {
 public:
  // at_once: samples of a batch, summed over all ranks. `set` must outlive this object. Host buffers are pinned if the
  // device is a GPU.
  EvaluationSet(const Dataset& set, std::int64_t at_once, const ReadingOptions& reading, std::int64_t seed,
                Device device, const ReadingRank& rank = {});

  Loader& loader() { return loader_; }
  std::int64_t samples() const { return set_.samples(); }  // of all ranks

  // The first samples of the set, as a batch on the host.
  Batch first_samples(std::int64_t count) const;
  // Reads the first batch, which detects NaN and damaged files, then seeks back to the start.
  void try_first_batch();

 private:
  std::unique_ptr<Dataset> band_;  // null: the set is read whole
  const Dataset& set_;
  std::uint64_t seed_;
  Loader loader_;
};

class Loaders {
 public:
  // The data sets must outlive this object. Host buffers are pinned if the device is a GPU. Throws Error if the
  // training set has fewer samples than a batch.
  Loaders(const Dataset& train, const Dataset& valid, const ReadingOptions& reading, const BatchOptions& batch,
          std::int64_t seed, Device device, ReadingRank rank = {});

  // A batch of it has as many samples as a part of a training batch.
  EvaluationSet& valid() { return valid_; }
  // The same for another set, which must outlive the result; at_once: the samples of its batches over all ranks; none:
  // as many.
  EvaluationSet judged(const Dataset& set, std::optional<std::int64_t> at_once = {}) const;

  std::int64_t train_samples() const { return train_->samples(); }  // includes samples of dropped incomplete batches
  std::int64_t iterations_per_epoch() const { return parts_per_epoch() / batch_.grad_accumulation; }

  // Reads the first batch of each set, which detects NaN and damaged files, then seeks back to the start.
  void try_first_batches();

  // The next part of a training batch, on the device. Ready for work that the current stream is given after this call.
  std::shared_ptr<const LoadedBatch> next();
  // Reads the part after the one that next() returned, and starts its copy to the device on a stream of its own. Call
  // it when the device is busy. next() throws its errors. Does nothing on the CPU: there is no copy engine to overlap
  // with.
  void read_ahead();

  // The position in the training set: what next() returns next.
  Cursor cursor() const { return ahead_ ? ahead_->at : train_loader_.cursor(); }
  void seek(Cursor cursor);
  // Where a run is now that its training set had `samples` samples, in its own order, when it was here, and has another
  // number now. Error where it has begun again with the first one, or would now: the samples behind it would be others.
  Cursor moved(Cursor cursor, std::int64_t samples) const;
  // Continues with another view of the same training samples (Loader::use), which must outlive this object.
  void use(const Dataset& view);
  std::int64_t parts_per_epoch() const { return train_loader_.batches_per_epoch(); }
  // Of an epoch of so many samples.
  std::int64_t parts_of(std::int64_t samples) const {
    return batch_.iterations_per_epoch(samples) * batch_.grad_accumulation;
  }

 private:
  // The upload that read_ahead() has started.
  struct Ahead {
    Cursor at;
    std::unique_ptr<Upload> upload;
    std::exception_ptr error;
  };

  std::unique_ptr<Upload> upload_next();

  std::unique_ptr<Dataset> train_band_;  // null: the set is read whole
  const Dataset* train_;
  ReadingOptions reading_;
  BatchOptions batch_;
  std::int64_t seed_;
  Device device_;
  ReadingRank rank_;
  Loader train_loader_;
  EvaluationSet valid_;
  std::shared_ptr<const gpu::OwnedStream> uploads_;  // null on the CPU
  std::optional<Ahead> ahead_;
  std::unique_ptr<Upload> current_;  // its copies may still be running
};

}  // namespace isobar
