#include "apps/train/trainer.h"

#include <cmath>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "apps/train/clock.h"
#include "apps/train/run_state.h"
#include "comm/whole_tensors.h"
#include "engine/files/flat_tensors.h"
#include "engine/tape.h"
#include "kernels/cuda/runtime.h"
#include "kernels/elementwise.h"
#include "kernels/grad_norm.h"

namespace isobar {
namespace {

// Takes one pass over the numbers, where they lie.
bool is_sum_of_squares_finite(const Tensor& flat) {
  const Tensor sum = Tensor::empty({1}, DType::fp64, flat.device());
  const Tensor workspace = Tensor::empty({kSumOfSquaresBlocks}, DType::fp64, flat.device());
  ISOBAR_RUN(flat.device(), sum_of_squares,
             {.n = flat.numel(),
              .dtype = flat.dtype(),
              .x = flat.data(),
              .sum = sum.data_as<double>(),
              .workspace = workspace.data_as<double>()},
             current_stream());
  return std::isfinite(sum.item());
}

// Of parts that several ranks hold, all have those of the lowest rank afterwards.
void make_equal(Parameters& parameters, const Parallel& parallel) {
  for (const auto& [sharing, range] : parameters.sections())
    if (sharing != Sharing::shard) parallel.tp.broadcast(parameters.weights().slice(range.first, {range.size()}), 0);
  parallel.tokens.broadcast(parameters.weights(), 0);
  parameters.round_to_compute();
}

// Of a validation's batches only the last one can be of another size. All ranks that score together have as many.
void rehearse_validation(const Task& task, Loaders& loaders) {
  const TapeScope off(nullptr);
  Loader& loader = loaders.valid();
  const std::int64_t batches = loader.batches_per_epoch();
  if (batches == 0) return;  // more ranks than samples
  const std::unique_ptr<Metrics> metrics = task.metrics();
  metrics->begin();
  for (const std::int64_t batch : std::set<std::int64_t>{0, batches - 1}) {
    loader.seek({0, batch});
    task.score(to_device(loader.next()->tensors, task.device()), *metrics);
  }
}

std::unique_ptr<GradientReducer> make_reducer(Parameters& parameters, const Parallel& parallel) {
  if (parallel.world.size() == 1) return nullptr;
  return std::make_unique<GradientReducer>(parameters, parallel);
}

}  // namespace

// The forward and backward passes of a step recorded as a CUDA graph: they read `batches`, one a part, which are filled
// before every replay.
struct Trainer::Capture {
  std::vector<Batch> batches;
  gpu::Graph graph;
};

Trainer::Trainer(Task& task, const TrainerOptions& options, Parallel parallel)
    : task_(task),
      options_(options),
      parallel_(std::move(parallel)),
      reducer_(make_reducer(task.parameters(), parallel_)),
      optimizer_(make_optimizer()),
      lr_(options.schedule.learning_rate(options.batch.global_batch_size)),
      loss_scale_(LossScale::for_dtype(task.parameters().activation_dtype())),
      losses_(Tensor::zeros({options.batch.grad_accumulation}, task.parameters().dtype(), task.device())),
      losses_read_(losses_),
      upstream_(Tensor::empty({1}, losses_.dtype(), losses_.device())) {
  make_equal(task.parameters(), parallel_);
  if (!options_.compute.cuda_graph) return;
  ISOBAR_CHECK(parallel_.world.size() == 1, "cuda_graph: works with one rank only");
  ISOBAR_CHECK(task.device().kind == DeviceKind::cuda, "cuda_graph: needs an NVIDIA GPU");
  captured_stream_ = Tensor::empty({1}, DType::fp64, task.device());  // 8 bytes
  stream_on_host_ = Tensor::over(transfer_memory(captured_stream_.bytes(), task.device()), {1}, DType::fp64);
}

// After an error the device may still be about to read or write host memory of this; else somebody has waited.
Trainer::~Trainer() {
  if (std::uncaught_exceptions() == 0) return;
  gpu::quietly([&] { gpu::synchronize(task_.device(), current_stream()); });
}

Optimizer Trainer::make_optimizer() {
  if (!reducer_) return {task_.parameters(), options_.optimizer};
  return {task_.parameters(), options_.optimizer, reducer_->owned(), reducer_->add_up()};
}

// Lies in memory, where a captured step finds the scale of this iteration.
void Trainer::set_upstream(double value) {
  ISOBAR_RUN(upstream_.device(), fill, {.n = 1, .dtype = upstream_.dtype(), .value = value, .y = upstream_.data()},
             current_stream());
}

// Masks of different iterations and parts come from streams of their own (models/context.h: at least 2^16 apart). In a
// graph the iteration's part of the number lies in memory, as the factor of the loss does.
DropoutKey Trainer::masks_of(std::int64_t part) const {
  const auto seed = static_cast<std::uint64_t>(options_.compute.seed);
  const auto of_part = static_cast<std::uint64_t>(part) << 16;
  if (!captured_stream_.defined()) return {seed, first_stream() + of_part};
  return {seed, of_part, static_cast<const std::uint64_t*>(captured_stream_.data())};
}

std::uint64_t Trainer::first_stream() const {
  return static_cast<std::uint64_t>(iteration_ * options_.batch.grad_accumulation) << 16;
}

// The last step has ended: the host's number is not read any more.
void Trainer::set_captured_stream() {
  if (!captured_stream_.defined()) return;
  const std::uint64_t stream = first_stream();
  std::memcpy(stream_on_host_.data(), &stream, sizeof stream);
  gpu::copy(captured_stream_.data(), stream_on_host_.data(), sizeof stream, task_.device(), current_stream());
}

// The mean over parts and ranks is made here, so that all that follows are sums. In fp16 the mean over ranks is made
// by the update instead: a gradient does not become the smaller, and underflow, the more ranks there are.
double Trainer::gradient_scale() const {
  return loss_scale_.scale * (loss_scale_.dynamic ? parallel_.dp.size() : 1);
}

void Trainer::begin_passes() {
  set_upstream(gradient_scale() / static_cast<double>(options_.batch.grad_accumulation * parallel_.dp.size()));
  set_captured_stream();
}

void Trainer::accumulate(const Batch& batch, std::int64_t part) {
  const std::int64_t parts = options_.batch.grad_accumulation;
  // Samples r, r + R, ... of the part that all ranks share (ReadingRank).
  const Context context{
      .training = true, .masks = masks_of(part), .block = {.samples = {parallel_.dp.rank(), parallel_.dp.size()}}};
  Tape tape;
  Tensor loss;
  {
    const gpu::Range range("forward");
    const MemoryScope memory("activations");
    const TapeScope recording(tape);
    loss = task_.loss(batch, context);
  }
  losses_.slice(part, {1}).copy_from(loss);
  const gpu::Range range("backward");
  if (reducer_ && part == parts - 1) reducer_->begin(tape);
  tape.backward(loss, upstream_);
}

// Forward and backward over all parts of the batch: the gradients add up.
void Trainer::run_passes(const std::function<Batch(std::int64_t part)>& batch_of, const ReadAhead& read_ahead) {
  const std::int64_t parts = options_.batch.grad_accumulation;
  task_.parameters().begin_step();
  for (std::int64_t part = 0; part < parts; ++part) {
    accumulate(batch_of(part), part);
    read_ahead(/*for_next_step=*/part + 1 == parts);
  }
  task_.parameters().finish_gradients();
}

// The same as a graph, which has memory of its own: the pool gives back what earlier steps left in it, or the device
// would hold the activations twice.
std::unique_ptr<Trainer::Capture> Trainer::capture_passes(const NextBatch& next) {
  auto capture = std::make_unique<Capture>();
  for (std::int64_t part = 0; part < options_.batch.grad_accumulation; ++part)
    capture->batches.push_back(to_device(next()->tensors, task_.device()));
  gpu::synchronize(task_.device(), current_stream());
  gpu::trim_memory(task_.device().index);
  gpu::Capture recording(current_stream());
  run_passes([&](std::int64_t part) { return capture->batches[static_cast<std::size_t>(part)]; }, [](bool) {});
  capture->graph = recording.end();
  return capture;
}

void Trainer::replay_passes(const NextBatch& next, const ReadAhead& read_ahead) {
  if (capture_)
    for (Batch& batch : capture_->batches) copy_into(batch, next()->tensors);
  else
    capture_ = capture_passes(next);
  capture_->graph.launch(current_stream());
  read_ahead(/*for_next_step=*/true);
}

void Trainer::rehearse(Loaders& loaders) {
  const gpu::Range range("rehearsal");
  const Cursor cursor = loaders.cursor();
  begin_passes();
  {
    const std::shared_ptr<const LoadedBatch> batch = loaders.next();
    run_passes([&](std::int64_t) { return on_device(batch->tensors, task_.device()); }, [](bool) {});
  }
  if (reducer_) reducer_->finish();
  rehearse_validation(task_, loaders);
  gpu::synchronize(task_.device(), current_stream());
  loaders.seek(cursor);
}

CommLedger Trainer::predicted_traffic() const {
  CommLedger ledger;
  const std::int64_t samples = options_.batch.part(parallel_.dp.size());
  for (std::int64_t part = 0; part < options_.batch.grad_accumulation; ++part) task_.add_traffic(samples, ledger);
  if (reducer_) reducer_->add_traffic(ledger);
  return ledger;
}

RankHolds Trainer::holds() const {
  const Parameters& parameters = task_.parameters();
  const auto number = static_cast<std::int64_t>(size_of(parameters.dtype()));
  const auto rounded =
      static_cast<std::int64_t>(parameters.compute().defined() ? size_of(parameters.activation_dtype()) : 0);
  const auto bytes = [](const Tensor& tensor) {
    return tensor.defined() ? static_cast<std::int64_t>(tensor.bytes()) : 0;
  };
  const std::int64_t updated = reducer_ ? reducer_->fair_share() : parameters.held();
  return {
      .weights = {parameters.held() * (number + rounded), bytes(parameters.weights()) + bytes(parameters.compute())},
      .gradients = {parameters.held() * number, bytes(parameters.grads())},
      .moments = {2 * updated * number, bytes(optimizer_.m()) + bytes(optimizer_.v())}};
}

StepResult Trainer::step(const NextBatch& next, const ReadAhead& read_ahead) {
  const gpu::Range range("step " + std::to_string(iteration_));
  StepResult result{.lr = lr_.at(iteration_), .loss_scale = loss_scale_.scale, .gradient_scale = gradient_scale()};
  const NextBatch timed_next = [&] {
    const gpu::Range copying("data copy in " + std::to_string(iteration_));
    const Clock::time_point start = Clock::now();
    std::shared_ptr<const LoadedBatch> loaded = next();
    result.data_seconds += seconds_since(start);
    return loaded;
  };
  // Counts where the device was done before, and has waited as well.
  const ReadAhead timed_read_ahead = [&](bool for_next_step) {
    gpu::Event given(task_.device());
    given.record(current_stream());
    const gpu::Range reading("read ahead");
    const Clock::time_point start = Clock::now();
    read_ahead(for_next_step);
    if (given.is_reached()) result.data_seconds += seconds_since(start);
  };
  begin_passes();
  // The first step of a process runs as it is, so that libraries have loaded and chosen their algorithms before one is
  // captured.
  if (options_.compute.cuda_graph && has_run_) {
    replay_passes(timed_next, timed_read_ahead);
  } else {
    run_passes([&](std::int64_t) { return on_device(timed_next()->tensors, task_.device()); }, timed_read_ahead);
  }
  has_run_ = true;
  if (reducer_) reducer_->finish();
  {
    const gpu::Range optimizer("optimizer");
    losses_read_.begin();
    optimizer_.launch(result.lr, result.gradient_scale);
    if (reducer_) reducer_->share_weights();
  }
  const UpdateResult update = optimizer_.result(result.gradient_scale);
  for (const double loss : losses_read_.values()) result.loss += loss / static_cast<double>(losses_.numel());
  ++iteration_;
  result.grad_norm = update.grad_norm;
  result.applied = update.applied;
  check_update(result);
  return result;
}

// Lowers or raises the loss scale, or ends the run where lowering it does not help.
void Trainer::check_update(const StepResult& result) {
  ISOBAR_CHECK(std::isfinite(result.loss), "iteration ", iteration_, ": the loss is ", result.loss,
               "; a lower lr, warmup or grad_clip may help");
  ISOBAR_CHECK(result.applied || loss_scale_.dynamic, "iteration ", iteration_,
               ": a gradient is not finite; a lower lr, warmup or grad_clip may help");
  loss_scale_.update(result.applied);
  ISOBAR_CHECK(loss_scale_.scale >= LossScale::kMin, "iteration ", iteration_,
               ": fp16 gradients overflow at every loss scale; use amp_mode bf16");
}

bool Trainer::validate(Loaders& loaders, Metrics& metrics, const std::function<bool()>& stop,
                       const std::function<void(std::int64_t samples)>& scored) const {
  // What a graph holds between two steps, and what the passes here leave in the pool, is never needed at once.
  const auto trim = [this] {
    if (capture_) gpu::trim_memory(task_.device().index);
  };
  trim();
  const bool is_whole = score_all(task_, loaders, metrics, stop, parallel_.dp, parallel_.world, scored);
  trim();
  if (!is_whole) return false;
  const double loss = metrics.loss();
  ISOBAR_CHECK(std::isfinite(loss), "iteration ", iteration_, ": the validation loss is ", loss,
               iteration_ > 0 ? "; a lower lr, warmup or grad_clip may help" : " before any update");
  return true;
}

FlatBuffer Trainer::gradients() const {
  const Tensor& all = task_.parameters().grads();
  const std::vector<FlatRange> ranges = optimizer_.ranges();
  const Tensor own = Tensor::empty({optimizer_.m().numel()}, all.dtype(), all.device());
  std::int64_t at = 0;
  for (const FlatRange& range : ranges) {
    if (range.size() > 0) own.slice(at, {range.size()}).copy_from(all.slice(range.first, {range.size()}));
    at += range.size();
  }
  return {"", own, ranges};
}

FlatBuffers Trainer::moments() const {
  return {{"m.", optimizer_.m(), optimizer_.ranges()}, {"v.", optimizer_.v(), optimizer_.ranges()}};
}

FlatBuffers Trainer::weights_and_moments() const {
  FlatBuffers buffers = moments();
  buffers.insert(buffers.begin(), FlatBuffer{"", task_.parameters().weights(), {}});
  return buffers;
}

void Trainer::check_finite() const {
  for (const FlatBuffer& buffer : weights_and_moments()) {
    if (is_sum_of_squares_finite(buffer.values)) continue;
    for (const NamedParameter& p : task_.parameters().named())
      ISOBAR_CHECK(is_finite(values_of(buffer, held_part(buffer, p))), "iteration ", iteration_, ": ", buffer.prefix,
                   p.name, " is not finite after the update; a lower lr, warmup or grad_clip may help");
  }
}

void Trainer::check_replicas() const {
  const std::string difference = difference_of_replicas(task_.parameters(), weights_and_moments(), parallel_.world);
  ISOBAR_CHECK(difference.empty(), "iteration ", iteration_, ": ", difference);
}

void Trainer::write_optimizer(const std::filesystem::path& path) const {
  write_whole(path, task_.parameters(), moments(), {}, parallel_.world);
}

void Trainer::read_optimizer(const std::filesystem::path& path) {
  read_flat(path, task_.parameters(), moments());
}

nlohmann::ordered_json Trainer::state() const {
  return {{"iteration", iteration_},
          {"updates", optimizer_.updates()},
          {"loss_scale", loss_scale_.scale},
          {"clean_updates", loss_scale_.clean_updates}};
}

void Trainer::set_state(const nlohmann::ordered_json& state) {
  iteration_ = whole_number_in(state, "iteration", 0);
  optimizer_.set_updates(whole_number_in(state, "updates", 0, iteration_));
  loss_scale_.scale = number_in(state, "loss_scale", LossScale::kMin, LossScale::kMax);
  loss_scale_.clean_updates = whole_number_in(state, "clean_updates", 0, loss_scale_.interval - 1);
}

bool score_all(const Task& task, Loaders& loaders, Metrics& metrics, const std::function<bool()>& stop,
               const Communicator& ranks, const Communicator& voters,
               const std::function<void(std::int64_t samples)>& scored) {
  const TapeScope off(nullptr);
  const MemoryScope memory("validation");
  Loader& loader = loaders.valid();
  metrics.begin();
  loader.seek({0, 0});
  // Every rank votes as often as the one with most batches.
  const std::int64_t batches = loaders.most_valid_batches();
  for (std::int64_t i = 0; i < batches; ++i) {
    if (is_true_on_any(voters, stop())) return false;
    if (i < loader.batches_per_epoch()) task.score(to_device(loader.next()->tensors, task.device()), metrics);
    scored(loaders.valid_samples() * (i + 1) / batches);
  }
  for (const std::span<double> sums : metrics.sums()) ranks.all_reduce(sums);
  metrics.end();
  return true;
}

}  // namespace isobar
