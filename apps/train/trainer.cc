#include "apps/train/trainer.h"

#include <cmath>
#include <cstring>
#include <deque>
#include <exception>
#include <limits>
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

// A rank may have no sample of a validation's last batch.
void score_batch(const Task& task, const LoadedBatch& batch, Metrics& metrics) {
  if (!batch.samples.empty()) task.score(to_device(batch.tensors, task.device()), metrics);
}

// Of a validation's batches only the last one can be of another size. All ranks that score together have as many.
void rehearse_validation(const Task& task, JudgedSet& set) {
  const TapeScope off(nullptr);
  Loader& loader = set.loader();
  const std::int64_t batches = loader.batches_per_epoch();
  if (batches == 0) return;  // no samples
  const std::unique_ptr<Metrics> metrics = task.metrics();
  metrics->begin();
  for (const std::int64_t batch : std::set<std::int64_t>{0, batches - 1}) {
    loader.seek({0, batch});
    score_batch(task, *loader.next(), *metrics);
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

// The parts of a step's batch in their order, each with its share of the whole. A whole that counts samples is known
// with its first part; else all parts are taken before the first one is handed out.
class Trainer::StepParts {
 public:
  StepParts(Trainer& trainer, const NextBatch& next)
      : trainer_(trainer), next_(next), left_(trainer.options_.batch.grad_accumulation) {
    take_one();
    const BatchOptions& batch = trainer_.options_.batch;
    samples_ = batch.global_batch_size - queue_.front().loaded->missing;
    whole_ = static_cast<double>(samples_);
    if (trainer_.task_.counts_samples()) return;
    while (left_ > 0) take_one();
    whole_ = 0;
    for (const QueuedPart& part : queue_) whole_ += part.weight;
    trainer_.parallel_.dp.all_reduce({&whole_, 1});
    ISOBAR_CHECK(whole_ > 0, "iteration ", trainer_.iteration_ + 1, ": nothing counts in this batch of ", samples_,
                 samples_ == 1 ? " sample" : " samples");
  }

  // The next part, whose share the trainer has then.
  std::shared_ptr<const LoadedBatch> next() {
    if (queue_.empty()) take_one();
    const QueuedPart part = std::move(queue_.front());
    queue_.pop_front();
    trainer_.set_share(number_++, part.weight > 0 ? whole_ / part.weight : std::numeric_limits<double>::infinity());
    return part.loaded;
  }

  std::int64_t missing() const { return trainer_.options_.batch.global_batch_size - samples_; }
  // So that all of them have a backward pass of the last part. Parts are dealt from the first rank on.
  bool all_ranks_have_last() const {
    const BatchCut cut = trainer_.options_.batch.cut();
    return part_of(samples_, cut.parts - 1, cut.parts).size() >= trainer_.parallel_.dp.size();
  }

 private:
  void take_one() {
    std::shared_ptr<const LoadedBatch> loaded = next_();
    const double weight = trainer_.task_.weight(loaded->tensors);
    queue_.push_back({std::move(loaded), weight});
    --left_;
  }

  Trainer& trainer_;
  const NextBatch& next_;
  std::int64_t left_;        // parts that were not taken yet
  std::int64_t number_ = 0;  // of the next part
  std::int64_t samples_ = 0;
  double whole_ = 0;  // the weight of the batch, over all ranks
  std::deque<QueuedPart> queue_;
};

Trainer::Trainer(Task& task, const TrainerOptions& options, Parallel parallel)
    : task_(task),
      options_(options),
      parallel_(std::move(parallel)),
      reducer_(make_reducer(task.parameters(), parallel_)),
      optimizer_(make_optimizer()),
      lr_(options.schedule.learning_rate(options.batch.global_batch_size, options.iterations_per_epoch)),
      loss_scale_(LossScale::for_dtype(task.parameters().activation_dtype(), options.loss_scale)),
      losses_(Tensor::zeros({options.batch.grad_accumulation}, task.parameters().dtype(), task.device())),
      losses_read_(losses_),
      shares_(static_cast<std::size_t>(options.batch.grad_accumulation), 1.0),
      upstream_(Tensor::empty({options.batch.grad_accumulation}, losses_.dtype(), losses_.device())) {
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

// The mean over parts and ranks is made here, so that all that follows are sums. The upstream lies in memory, where a
// captured step finds that of this iteration.
void Trainer::set_share(std::int64_t part, double share) {
  shares_[static_cast<std::size_t>(part)] = share;
  const Tensor upstream = upstream_.slice(part, {1});
  ISOBAR_RUN(upstream.device(), fill,
             {.n = 1, .dtype = upstream.dtype(), .value = gradient_scale() / share, .y = upstream.data()},
             current_stream());
}

// Masks of different iterations and parts come from streams of their own (models/pass.h: at least 2^16 apart). In a
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

// In fp16 the mean over ranks is made by the update: a gradient does not become the smaller, and underflow, the more
// ranks there are.
double Trainer::gradient_scale() const {
  return loss_scale_.scale * (loss_scale_.dynamic ? parallel_.dp.size() : 1);
}

// is_last: sums of gradients may begin before its backward pass ends.
void Trainer::accumulate(const Batch& batch, std::int64_t part, bool is_last) {
  // Samples r, r + R, ... of the part that all ranks share (ReadingRank).
  const Pass pass = Pass::training(masks_of(part), {parallel_.dp.rank(), parallel_.dp.size()});
  Tape tape;
  Tensor loss;
  {
    const gpu::Range range("forward");
    const MemoryScope memory("activations");
    const TapeScope recording(tape);
    loss = task_.loss(batch, pass);
  }
  losses_.slice(part, {1}).copy_from(loss);
  const gpu::Range range("backward");
  if (reducer_ && is_last) reducer_->begin(tape);
  tape.backward(loss, upstream_.slice(part, {1}));
}

// Forward and backward over all parts of the batch: the gradients add up. Where a rank has no sample of the last part,
// all ranks begin their sums afterwards, or they would begin them in different orders.
void Trainer::run_passes(const std::function<Batch(std::int64_t part)>& batch_of, bool all_ranks_have_last,
                         const ReadAhead& read_ahead) {
  const std::int64_t parts = options_.batch.grad_accumulation;
  task_.parameters().begin_step();
  for (std::int64_t part = 0; part < parts; ++part) {
    const Batch batch = batch_of(part);
    const bool is_last = part + 1 == parts;
    if (batch_size(batch) > 0) accumulate(batch, part, is_last && all_ranks_have_last);
    read_ahead(/*for_next_step=*/is_last);
  }
  if (reducer_ && !all_ranks_have_last) reducer_->begin_after_backward();
  task_.parameters().finish_gradients();
}

// The same as a graph, which has memory of its own: the pool gives back what earlier steps left in it, or the device
// would hold the activations twice.
std::unique_ptr<Trainer::Capture> Trainer::capture_passes(StepParts& parts) {
  auto capture = std::make_unique<Capture>();
  for (std::int64_t part = 0; part < options_.batch.grad_accumulation; ++part)
    capture->batches.push_back(to_device(parts.next()->tensors, task_.device()));
  gpu::synchronize(task_.device(), current_stream());
  gpu::trim_memory(task_.device().index);
  gpu::Capture recording(current_stream());
  run_passes([&](std::int64_t part) { return capture->batches[static_cast<std::size_t>(part)]; }, true, [](bool) {});
  capture->graph = recording.end();
  return capture;
}

void Trainer::replay_passes(StepParts& parts, const ReadAhead& read_ahead) {
  if (capture_)
    for (Batch& batch : capture_->batches) copy_into(batch, parts.next()->tensors);
  else
    capture_ = capture_passes(parts);
  capture_->graph.launch(current_stream());
  read_ahead(/*for_next_step=*/true);
}

void Trainer::rehearse(Loaders& loaders) {
  const gpu::Range range("rehearsal");
  const Cursor cursor = loaders.cursor();
  set_captured_stream();
  {
    const std::shared_ptr<const LoadedBatch> batch = loaders.next();
    for (std::int64_t part = 0; part < options_.batch.grad_accumulation; ++part)
      set_share(part, static_cast<double>(options_.batch.grad_accumulation * parallel_.dp.size()));
    run_passes([&](std::int64_t) { return on_device(batch->tensors, task_.device()); }, true, [](bool) {});
  }
  if (reducer_) reducer_->finish();
  rehearse_validation(task_, loaders.valid());
  gpu::synchronize(task_.device(), current_stream());
  loaders.seek(cursor);
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
      .moments = {(optimizer_.average().defined() ? 3 : 2) * updated * number,
                  bytes(optimizer_.m()) + bytes(optimizer_.v()) + bytes(optimizer_.average())}};
}

StepResult Trainer::step(const NextBatch& next, const ReadAhead& read_ahead) {
  const gpu::Range range("step " + std::to_string(iteration_));
  ISOBAR_CHECK(!is_averaged_, "iteration ", iteration_ + 1, " begins while the averaged weights are in use");
  StepResult result{.lr = lr_after(), .loss_scale = loss_scale_.scale, .gradient_scale = gradient_scale()};
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
  set_captured_stream();
  StepParts parts(*this, timed_next);
  // The first step of a process runs as it is, so that libraries have loaded and chosen their algorithms before one is
  // captured; and so does an incomplete batch, whose shapes are others.
  if (options_.compute.cuda_graph && has_run_ && parts.missing() == 0) {
    replay_passes(parts, timed_read_ahead);
  } else {
    run_passes([&](std::int64_t) { return on_device(parts.next()->tensors, task_.device()); },
               parts.all_ranks_have_last(), timed_read_ahead);
  }
  has_run_ = true;
  result.missing = parts.missing();
  if (reducer_) reducer_->finish();
  {
    const gpu::Range optimizer("optimizer");
    losses_read_.begin();
    optimizer_.launch(result.lr, result.gradient_scale);
    if (reducer_) reducer_->share_weights();
  }
  const UpdateResult update = optimizer_.result(result.gradient_scale);
  result.loss = sum_of_losses();
  ++iteration_;
  result.grad_norm = update.grad_norm;
  result.applied = update.applied;
  check_update(result);
  return result;
}

// As StepResult::loss has it. What counts nothing is not read: it may be NaN, or of an earlier step.
double Trainer::sum_of_losses() const {
  double sum = 0;
  const std::vector<double> losses = losses_read_.values();
  for (std::size_t part = 0; part < losses.size(); ++part)
    if (std::isfinite(shares_[part])) sum += losses[part] / (shares_[part] / parallel_.dp.size());
  return sum;
}

// Lowers or raises the loss scale, or ends the run where lowering it does not help.
void Trainer::check_update(const StepResult& result) {
  ISOBAR_CHECK(std::isfinite(result.loss), "iteration ", iteration_, ": the loss is ", result.loss,
               "; a lower lr, warmup or grad_clip may help");
  ISOBAR_CHECK(result.applied || loss_scale_.dynamic, "iteration ", iteration_,
               ": a gradient is not finite; a lower lr, warmup or grad_clip may help");
  loss_scale_.update(result.applied);
  ISOBAR_CHECK(!loss_scale_.is_too_small(), "iteration ", iteration_,
               ": fp16 gradients overflow at every loss scale; use amp_mode bf16");
}

bool Trainer::judge(JudgedSet& set, Metrics& metrics, const std::function<bool()>& stop,
                    const std::function<void(std::int64_t samples)>& scored) const {
  // What a graph holds between two steps, and what the passes here leave in the pool, is never needed at once.
  const auto trim = [this] {
    if (capture_) gpu::trim_memory(task_.device().index);
  };
  trim();
  const bool is_whole = score_all(task_, set, metrics, stop, parallel_.dp, parallel_.world, scored);
  trim();
  return is_whole;
}

bool Trainer::validate(JudgedSet& set, Metrics& metrics, const std::function<bool()>& stop,
                       const std::function<void(std::int64_t samples)>& scored) const {
  if (!judge(set, metrics, stop, scored)) return false;
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
  if (optimizer_.has_average()) buffers.push_back({"average.", optimizer_.average(), optimizer_.ranges()});
  return buffers;
}

// Ranks that share a sharded optimizer have the averages of each other's ranges afterwards, as they have the weights.
void Trainer::swap_average() {
  optimizer_.swap_average();
  if (reducer_) reducer_->share_weights();
  task_.parameters().round_to_compute();
  is_averaged_ = !is_averaged_;
}

Trainer::AveragedWeights::AveragedWeights(Trainer& trainer) : exceptions_(std::uncaught_exceptions()) {
  if (trainer.is_averaged_ || !trainer.optimizer_.has_average()) return;
  trainer.swap_average();
  trainer_ = &trainer;
}

Trainer::AveragedWeights::~AveragedWeights() noexcept(false) {
  if (trainer_ != nullptr && std::uncaught_exceptions() == exceptions_) trainer_->swap_average();
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
  FlatBuffers buffers = moments();
  if (optimizer_.average().defined() && is_averaged_)
    buffers.push_back({"w.", optimizer_.average(), optimizer_.ranges()});
  else if (optimizer_.average().defined())
    buffers.push_back({"w.", task_.parameters().weights(), {}});
  write_whole(path, task_.parameters(), buffers, {}, parallel_.world);
}

void Trainer::read_optimizer(const std::filesystem::path& path) {
  FlatBuffers buffers = moments();
  if (optimizer_.average().defined()) {
    optimizer_.begin_average();
    buffers.push_back({"w.", task_.parameters().weights(), {}});
  }
  read_flat(path, task_.parameters(), buffers);
  task_.parameters().round_to_compute();
}

nlohmann::ordered_json Trainer::state() const {
  nlohmann::ordered_json state{{"iteration", iteration_},
                               {"updates", optimizer_.updates()},
                               {"loss_scale", loss_scale_.scale},
                               {"clean_updates", loss_scale_.clean_updates}};
  if (loss_scale_.options.hysteresis > 1) state["overflows_left"] = loss_scale_.overflows_left;
  return state;
}

void Trainer::set_state(const nlohmann::ordered_json& state) {
  iteration_ = whole_number_in(state, "iteration", 0);
  optimizer_.set_updates(whole_number_in(state, "updates", 0, iteration_));
  loss_scale_.scale = number_in(state, "loss_scale", loss_scale_.options.min_loss_scale, LossScale::kMax);
  loss_scale_.clean_updates = whole_number_in(state, "clean_updates", 0, loss_scale_.options.loss_scale_window - 1);
  if (loss_scale_.options.hysteresis > 1)
    loss_scale_.overflows_left = whole_number_in(state, "overflows_left", 0, loss_scale_.options.hysteresis);
}

bool score_all(const Task& task, JudgedSet& set, Metrics& metrics, const std::function<bool()>& stop,
               const Communicator& ranks, const Communicator& voters,
               const std::function<void(std::int64_t samples)>& scored) {
  const TapeScope off(nullptr);
  const MemoryScope memory("validation");
  Loader& loader = set.loader();
  metrics.begin();
  loader.seek({0, 0});
  const std::int64_t batches = loader.batches_per_epoch();
  for (std::int64_t i = 0; i < batches; ++i) {
    if (is_true_on_any(voters, stop())) return false;
    score_batch(task, *loader.next(), metrics);
    scored(set.samples() * (i + 1) / batches);
  }
  for (const std::span<double> sums : metrics.sums()) ranks.all_reduce(sums);
  metrics.end();
  return true;
}

}  // namespace isobar
