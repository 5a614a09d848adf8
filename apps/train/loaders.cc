#include "apps/train/loaders.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/common/check.h"

namespace isobar {

namespace {

constexpr double kMaxRampSamples = 1 << 24;  // of a batch that grows; a table has each of its iterations
constexpr double kMaxWorkers = 256;          // threads that read; more would only wait for each other

LoaderOptions loader_options(const ReadingOptions& reading, const BatchCut& cut, Device device) {
  return {.cut = cut,
          .workers = reading.num_data_workers,
          .workers_key = "num_data_workers",
          .allocator = [device](std::size_t bytes) { return transfer_memory(bytes, device); }};
}

// The samples that this rank reads: the data set itself, or a band of it. `band` then owns the band.
const Dataset& samples_of(const ReadingRank& rank, const Dataset& dataset, std::unique_ptr<Dataset>& band) {
  if (!rank.rows) return dataset;
  band = dataset.band(*rank.rows);
  return *band;
}

void try_first_batch_of(Loader& loader) {
  if (loader.batches_per_epoch() == 0) return;  // no samples
  loader.next();
  loader.seek({0, 0});
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
               .within(0, kMaxWorkers)
               .free_on_resume()
               .also_called({"workers", "numworkers"})}};
}

KeyTable BatchOptions::keys() {
  return {
      "The batch",
      {key("global_batch_size", global_batch_size, "samples of one update")
           .at_least(1)
           .also_called({"batchsize", "bs", "batch"})
           .in_yaml({"batch_size"}),
       key("grad_accumulation", grad_accumulation,
           "parts that global_batch_size is split into, one after the other, to save memory")
           .at_least(1)
           .also_called({"gradientaccumulation", "accumulategradbatches"}),
       key("incomplete_batch", incomplete_batch,
           "the samples at an epoch's end that make no whole batch are left out, or are a smaller batch; a validation "
           "uses every sample")
           .also_called({"droplast"}),
       key("loss_mean", loss_mean,
           "what the loss of a batch is the mean of: targets (all that count, however they are cut), or micro_batches "
           "(the means of all parts of all ranks, as in Megatron-LM: it depends on the cut where parts count "
           "differently many)"),
       key("batch_rampup", batch_rampup,
           "[START, INCREMENT, SAMPLES]: the batch grows from START by INCREMENT to global_batch_size, over the first "
           "SAMPLES samples; all of them are multiples of a part. Null: it is constant")
           .at_least(1)
           .also_called({"rampupbatchsize"})},
      [this](const KeyOrigins& origins) {
        check_ramp(origins);
        ISOBAR_CHECK(global_batch_size >= grad_accumulation, origins.where("global_batch_size"),
                     " must be at least grad_accumulation (", grad_accumulation, "), not ", global_batch_size);
      }};
}

void BatchOptions::check_ramp(const KeyOrigins& origins) const {
  if (!batch_rampup) return;
  const std::vector<double>& r = *batch_rampup;
  const bool is_whole = std::ranges::all_of(r, [](double number) { return number == std::floor(number); });
  ISOBAR_CHECK(r.size() == 3 && is_whole && r[2] < kMaxRampSamples, origins.where("batch_rampup"),
               " must be three whole numbers: START, INCREMENT, SAMPLES");
  const auto start = static_cast<std::int64_t>(r[0]), increment = static_cast<std::int64_t>(r[1]);
  ISOBAR_CHECK(start <= global_batch_size && (global_batch_size - start) % increment == 0,
               origins.where("batch_rampup"), ": from ", start, " by ", increment, " the batch does not reach ",
               global_batch_size, ", which is global_batch_size");
  const std::int64_t part = global_batch_size / grad_accumulation;
  ISOBAR_CHECK(global_batch_size % grad_accumulation == 0 && start % part == 0 && increment % part == 0,
               origins.where("batch_rampup"), ": ", start, " and ", increment, " must be multiples of a part, of ",
               part, " samples (global_batch_size / grad_accumulation)");
  ISOBAR_CHECK(start == global_batch_size || incomplete_batch == IncompleteBatch::drop, origins.where("batch_rampup"),
               " does not fit incomplete_batch keep");
}

BatchRamp BatchOptions::ramp() const {
  if (!batch_rampup) return BatchRamp(global_batch_size);
  const auto whole = [&](std::size_t i) { return static_cast<std::int64_t>((*batch_rampup)[i]); };
  return {global_batch_size, whole(0), whole(1), whole(2)};
}

BatchOptions BatchOptions::after(std::int64_t iterations) const {
  BatchOptions now = *this;
  if (!batch_rampup) return now;
  now.global_batch_size = ramp().batch_after(iterations);
  now.grad_accumulation = now.global_batch_size / (global_batch_size / grad_accumulation);
  return now;
}

BatchCut BatchOptions::cut(std::int64_t rank, std::int64_t ranks) const {
  ISOBAR_CHECK(global_batch_size / grad_accumulation >= ranks, "global_batch_size (", global_batch_size,
               ") must be at least the ", ranks, " data-parallel ranks times grad_accumulation (", grad_accumulation,
               ")");
  return {.batch = global_batch_size,
          .parts = grad_accumulation,
          .keeps_incomplete = incomplete_batch == IncompleteBatch::keep,
          .rank = rank,
          .ranks = ranks};
}

std::int64_t BatchOptions::at_once(std::int64_t ranks) const {
  const std::int64_t of_all = part_of(global_batch_size, 0, grad_accumulation).size();
  return (of_all - 1) / ranks + 1;
}

void BatchOptions::check_fits(const Dataset& train) const {
  ISOBAR_CHECK(global_batch_size <= train.samples(), "global_batch_size is ", global_batch_size,
               ", but the training set, ", train.name(), ", has ", train.samples(), " samples only");
}

EvaluationSet::EvaluationSet(const Dataset& set, std::int64_t at_once, const ReadingOptions& reading, std::int64_t seed,
                             Device device, const ReadingRank& rank)
    : set_(samples_of(rank, set, band_)),
      seed_(static_cast<std::uint64_t>(seed)),
      loader_(
          set_, Sampler(set.samples(), /*shuffle=*/false, seed_),
          loader_options(reading, {.batch = at_once, .keeps_incomplete = true, .rank = rank.rank, .ranks = rank.ranks},
                         device)) {}

Batch EvaluationSet::first_samples(std::int64_t count) const {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(count, set_.samples())));
  std::iota(samples.begin(), samples.end(), 0);
  return read_batch(set_, samples, seed_);
}

void EvaluationSet::try_first_batch() {
  try_first_batch_of(loader_);
}

Loaders::Loaders(const Dataset& train, const Dataset& valid, const ReadingOptions& reading, const BatchOptions& batch,
                 std::int64_t seed, Device device, ReadingRank rank)
    : train_(&holding_a_batch(samples_of(rank, train, train_band_), batch)),
      reading_(reading),
      batch_(batch),
      seed_(seed),
      device_(device),
      rank_(rank),
      train_loader_(
          *train_,
          Sampler(train.samples(), reading.shuffle && !train.has_own_order(), static_cast<std::uint64_t>(seed)),
          loader_options(reading, batch.cut(rank.rank, rank.ranks), device)),
      valid_(judged(valid)),
      uploads_(device.kind == DeviceKind::cpu ? nullptr : std::make_shared<gpu::OwnedStream>(device)) {}

EvaluationSet Loaders::judged(const Dataset& set, std::optional<std::int64_t> at_once) const {
  return {set, at_once.value_or(batch_.at_once()), reading_, seed_, device_, rank_};
}

void Loaders::try_first_batches() {
  try_first_batch_of(train_loader_);
  valid_.try_first_batch();
}

Cursor Loaders::moved(Cursor cursor, std::int64_t samples) const {
  ISOBAR_CHECK(train_->has_own_order(), "the training set had ", samples, " samples, and now has ", train_samples());
  const std::int64_t before = parts_of(samples), now = parts_per_epoch();
  const std::int64_t done = cursor.epoch == 0 ? cursor.batch : before + cursor.batch;  // in an epoch, or at its end
  const bool has_wrapped = cursor.epoch > 1 || done > before;
  const bool was_cut = done == before && batch_.incomplete_batch == IncompleteBatch::keep &&
                       samples % batch_.global_batch_size != 0;  // its last batch had fewer samples
  ISOBAR_CHECK(!has_wrapped && !was_cut && done <= now, "the training set had ", samples, " samples, and now has ",
               train_samples(), "; this run has ",
               done > now && !has_wrapped ? "used more of them" : "used all of them");
  return {done / now, done % now};
}

std::unique_ptr<Upload> Loaders::upload_next() {
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

void Loaders::use(const Dataset& view) {
  const Cursor next = cursor();
  std::unique_ptr<Dataset> band;
  const Dataset& samples = samples_of(rank_, view, band);
  seek(next);  // what was read ahead of it holds the tensors of the old view
  train_loader_.use(samples);
  train_ = &samples;
  train_band_ = std::move(band);
}

}  // namespace isobar
