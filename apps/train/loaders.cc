#include "apps/train/loaders.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/common/math.h"

namespace isobar {

namespace {

constexpr double kMostWorkers = 256;  // threads that read; more only wait for each other

LoaderOptions loader_options(const ReadingOptions& reading, std::int64_t batch_size, Device device, bool drop_last) {
  return {.batch_size = batch_size,
          .workers = reading.num_data_workers,
          .workers_key = "num_data_workers",
          .drop_last = drop_last,
          .allocator = [device](std::size_t bytes) { return transfer_memory(bytes, device); }};
}

// The samples as this rank reads them: the data set itself, or a band of it, which `band` then owns.
const Dataset& read_by(const ReadingRank& rank, const Dataset& dataset, std::unique_ptr<Dataset>& band) {
  if (!rank.rows) return dataset;
  band = dataset.band(*rank.rows);
  return *band;
}

const Dataset& holding_a_batch(const Dataset& train, const BatchOptions& batch) {
  batch.check_fits(train);
  return train;
}

}  // namespace

KeyTable ReadingOptions::keys() {
  return {"Reading",
          {key("shuffle", shuffle, "the order of the training samples is random, by seed and epoch"),
           key("num_data_workers", num_data_workers, "threads that read ahead; 0: the training thread reads")
               .within(0, kMostWorkers)
               .free_on_resume()
               .also_called({"workers", "numworkers"})}};
}

KeyTable BatchOptions::keys() {
  return {"The batch",
          {key("global_batch_size", global_batch_size, "samples of one update")
               .at_least(1)
               .also_called({"batchsize", "bs", "batch"}),
           key("grad_accumulation", grad_accumulation,
               "parts that global_batch_size is split into, one after the other, to save memory")
               .at_least(1)
               .also_called({"gradientaccumulation", "accumulategradbatches"})},
          [this](const KeyOrigins& origins) {
            ISOBAR_CHECK(global_batch_size % grad_accumulation == 0, origins.where("global_batch_size"),
                         " must be a multiple of grad_accumulation (", grad_accumulation, "), not ", global_batch_size);
          }};
}

std::int64_t BatchOptions::part(std::int64_t ranks) const {
  const std::int64_t samples = global_batch_size / grad_accumulation;  // of all ranks; keys() has seen that it divides
  ISOBAR_CHECK(samples % ranks == 0, "global_batch_size (", global_batch_size, ") must be a multiple of the ", ranks,
               " data-parallel ranks times grad_accumulation (", grad_accumulation, ")");
  return samples / ranks;
}

void BatchOptions::check_fits(const Dataset& train) const {
  ISOBAR_CHECK(global_batch_size <= train.samples(), "global_batch_size is ", global_batch_size,
               ", but the training set, ", train.name(), ", has ", train.samples(), " samples only");
}

Loaders::Loaders(const Dataset& train, const Dataset& valid, const ReadingOptions& reading, const BatchOptions& batch,
                 std::int64_t seed, Device device, ReadingRank rank)
    : train_(holding_a_batch(read_by(rank, train, train_band_), batch)),
      valid_(read_by(rank, valid, valid_band_)),
      batch_(batch),
      rank_(rank),
      train_loader_(train_,
                    Sampler(train.samples(), reading.shuffle, static_cast<std::uint64_t>(seed), rank.rank, rank.ranks),
                    loader_options(reading, batch.part(rank.ranks), device, /*drop_last=*/true)),
      valid_loader_(valid_, Sampler(valid.samples(), /*shuffle=*/false, /*seed=*/0, rank.rank, rank.ranks),
                    loader_options(reading, batch.part(rank.ranks), device, /*drop_last=*/false)),
      device_(device),
      uploads_(device.kind == DeviceKind::cpu ? nullptr : std::make_shared<gpu::OwnedStream>(device)) {}

std::int64_t Loaders::most_valid_batches() const {
  return ceil_div(ceil_div(valid_.samples(), rank_.ranks), batch_.part(rank_.ranks));
}

Batch Loaders::first_valid_samples(std::int64_t count) const {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(count, valid_.samples())));
  std::iota(samples.begin(), samples.end(), 0);
  return read_batch(valid_, samples);
}

void Loaders::try_first_batches() {
  for (Loader* loader : {&train_loader_, &valid_loader_}) {
    if (loader->batches_per_epoch() == 0) continue;  // more ranks than validation samples
    loader->next();
    loader->seek({0, 0});
  }
}

std::unique_ptr<Upload> Loaders::upload_next() {
  const Cursor cursor = train_loader_.cursor();
  if (cursor.batch >= iterations_per_epoch() * batch_.grad_accumulation) train_loader_.seek({cursor.epoch + 1, 0});
  return std::make_unique<Upload>(train_loader_.next(), device_, uploads_);
}

std::shared_ptr<const LoadedBatch> Loaders::next() {
  if (ahead_) {
    Ahead ahead = *std::exchange(ahead_, std::nullopt);
    if (ahead.error) std::rethrow_exception(ahead.error);
    current_ = std::move(ahead.upload);
  } else {
    current_ = upload_next();
  }
  return current_->batch();
}

void Loaders::read_ahead() {
  if (device_.kind == DeviceKind::cpu || ahead_) return;
  ahead_ = Ahead{.at = train_loader_.cursor(), .upload = nullptr, .error = nullptr};
  try {
    ahead_->upload = upload_next();
  } catch (...) {
    ahead_->error = std::current_exception();
  }
}

void Loaders::seek(Cursor cursor) {
  ahead_.reset();
  current_.reset();
  train_loader_.seek(cursor);
}

}  // namespace isobar
