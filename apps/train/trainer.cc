#include "apps/train/trainer.h"

#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "apps/train/clock.h"
#include "apps/train/run_state.h"
#include "apps/train/scoring.h"
#include "comm/whole_tensors.h"
#include "engine/files/flat_tensors.h"
#include "engine/files/json.h"
#include "kernels/common/number_text.h"
#include "kernels/common/run.h"
#include "kernels/cuda/runtime.h"
#include "kernels/grad_norm.h"

namespace isobar {
namespace {

constexpr std::int64_t kMostUpdates = std::int64_t{1} << 53;

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
  for (const auto& [sharing, range, frozen, tied] : parameters.sections())
    if (sharing != Sharing::shard) parallel.tp.broadcast(parameters.weights().slice(range.first, {range.size()}), 0);
  parallel.tokens.broadcast(parameters.weights(), 0);
  parameters.round_to_compute();
}

// Over the samples of the run.
WeightDecay decay_of(const TrainerOptions& options) {
  const bool is_constant = options.optimizer.weight_decay_schedule == WeightDecayKind::constant;
  return options.optimizer.decay_over(is_constant ? 1 : options.batch.ramp().samples_of(options.schedule.num_iters));
}

std::unique_ptr<GradientReducer> make_reducer(Parameters& parameters, const Parallel& parallel) {
  if (parallel.world.size() == 1) return nullptr;
  return std::make_unique<GradientReducer>(parameters, parallel);
}

std::unique_ptr<Pipeline> make_pipeline(const Task& task, const BatchOptions& batch, const Parallel& parallel) {
  check_pipeline(task, batch, parallel);
  if (parallel.pp.size() == 1) return nullptr;
  return std::make_unique<Pipeline>(*task.staged(), parallel, task.device());
}

}  // namespace

Trainer::Trainer(Task& task, const TrainerOptions& options, Parallel parallel)
    : task_(task),
      options_(options),
      parallel_(std::move(parallel)),
      reducer_(make_reducer(task.parameters(), parallel_)),
      optimizer_(make_optimizer()),
      lr_(options.schedule.learning_rate(options.batch.global_batch_size, options.iterations_per_epoch)),
      decay_(decay_of(options)),
      loss_scale_(LossScale::for_dtype(task.parameters().activation_dtype(), options.loss_scale)),
      passes_(task, options.batch, options.compute, parallel_, reducer_.get(), is_captured()),
      pipeline_(make_pipeline(task, options.batch, parallel_)),
      plan_(pipeline_ ? make_pipeline_plan(*pipeline_) : make_step_plan(is_captured())) {
  make_equal(task.parameters(), parallel_);
}

// After an error the device may still be about to read or write host memory of this; else somebody has waited.
Trainer::~Trainer() {
  if (std::uncaught_exceptions() == 0) return;
  gpu::quietly([&] { gpu::synchronize(task_.device(), current_stream()); });
}

bool Trainer::is_captured() const {
  if (!options_.compute.cuda_graph) return false;
  ISOBAR_CHECK(parallel_.world.size() == 1, "cuda_graph: works with one rank only");
  ISOBAR_CHECK(task_.device().kind == DeviceKind::cuda, "cuda_graph: needs an NVIDIA GPU");
  return true;
}

double Trainer::lr_after() const {
  if (lr_.by_samples) return lr_.at(applied_samples_);
  return lr_.at(lr_.counts_skipped() ? iteration_ : optimizer_.updates() - earlier_updates_);
}

Optimizer Trainer::make_optimizer() {
  if (!reducer_) return {task_.parameters(), options_.optimizer};
  return {task_.parameters(), options_.optimizer, reducer_->owned(), reducer_->add_up()};
}

// In fp16 the mean over ranks is made by the update: a gradient does not become the smaller, and underflow, the more
// ranks there are.
double Trainer::gradient_scale() const {
  return loss_scale_.scale * (loss_scale_.dynamic ? parallel_.dp.size() : 1);
}

void Trainer::rehearse(Loaders& loaders) {
  const gpu::Range range("rehearsal");
  const Cursor cursor = loaders.cursor();
  passes_.begin(iteration_, gradient_scale());
  {
    const std::shared_ptr<const LoadedBatch> batch = loaders.next();
    for (std::int64_t part = 0; part < passes_.parts(); ++part)
      passes_.set_share(part, static_cast<double>(passes_.parts() * parallel_.dp.size()));
    const auto batch_of = [&](std::int64_t) { return on_device(batch->tensors, task_.device()); };
    if (pipeline_)
      pipeline_->train(passes_, batch_of, true, [](bool) {});
    else
      run_in_turn(passes_, batch_of, true, [](bool) {});
  }
  if (reducer_) reducer_->finish();
  rehearse_scoring(task_, loaders.valid(), pipeline_.get());
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
  const std::int64_t updated = reducer_ ? reducer_->fair_share() : parameters.held_trained();
  return {
      .weights = {parameters.held() * (number + rounded), bytes(parameters.weights()) + bytes(parameters.compute())},
      .gradients = {parameters.held_trained() * number, bytes(parameters.grads())},
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
  const BatchOptions batch = options_.batch.after(iteration_);
  passes_.begin(iteration_, result.gradient_scale, batch.grad_accumulation);
  StepParts parts(task_, batch, parallel_.dp, iteration_ + 1, timed_next);
  Stopwatch watch;
  plan_->run(passes_, parts, timed_read_ahead);
  result.pass_seconds = watch.lap();
  result.missing = parts.missing();
  result.samples = batch.global_batch_size - result.missing;
  result.uncounted = parts.uncounted();
  if (reducer_) reducer_->finish();
  result.reduce_seconds = watch.lap();
  {
    const gpu::Range optimizer("optimizer");
    passes_.begin_reading_losses();
    optimizer_.set_weight_decay(decay_.at(applied_samples_));
    optimizer_.launch(result.lr, result.gradient_scale);
    if (reducer_) reducer_->share_weights();
  }
  const UpdateResult update = optimizer_.result(result.gradient_scale);
  result.loss = passes_.sum_of_losses();
  result.update_seconds = watch.lap();
  ++iteration_;
  result.grad_norm = update.grad_norm;
  result.applied = update.applied;
  if (update.applied) applied_samples_ += result.samples;
  check_update(result);
  result.next_lr = lr_after();
  result.next_loss_scale = loss_scale_.scale;
  return result;
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

bool Trainer::judge(EvaluationSet& set, Metrics& metrics, const std::function<bool()>& stop,
                    const std::function<void(std::int64_t samples)>& scored) const {
  plan_->trim(task_.device());
  const bool is_whole =
      score_all(task_, set, metrics, stop, {parallel_.samples, parallel_.world, pipeline_.get()}, scored);
  plan_->trim(task_.device());
  return is_whole;
}

bool Trainer::validate(EvaluationSet& set, Metrics& metrics, const std::function<bool()>& stop,
                       const std::function<void(std::int64_t samples)>& scored) const {
  if (!judge(set, metrics, stop, scored)) return false;
  const std::string lack = metrics.lack();
  ISOBAR_CHECK(lack.empty(), "the validation set of ", set.samples(), " samples cannot judge the model: ", lack);
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
  return {.prefix = "", .values = own, .held = ranges, .trained_only = true};
}

// A buffer in the layout of the optimizer's.
FlatBuffer Trainer::of_optimizer(const char* prefix, const Tensor& values) const {
  return {.prefix = prefix, .values = values, .held = optimizer_.ranges(), .trained_only = true};
}

// The weights themselves, where the model's file has their average. Of frozen ones there is none.
FlatBuffer Trainer::trained_weights() const {
  return {.prefix = "w.", .values = task_.parameters().weights(), .held = {}, .trained_only = true};
}

FlatBuffers Trainer::moments() const {
  FlatBuffer squares = of_optimizer("v.", optimizer_.v());
  squares.of_squares = true;
  return {of_optimizer("m.", optimizer_.m()), std::move(squares)};
}

FlatBuffers Trainer::weights_and_moments() const {
  FlatBuffers buffers = moments();
  buffers.insert(buffers.begin(), FlatBuffer{"", task_.parameters().weights(), {}});
  if (optimizer_.has_average()) buffers.push_back(of_optimizer("average.", optimizer_.average()));
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
    buffers.push_back(of_optimizer("w.", optimizer_.average()));
  else if (optimizer_.average().defined())
    buffers.push_back(trained_weights());
  write_whole(path, task_.parameters(), buffers, {}, parallel_.world);
}

void Trainer::read_optimizer(const std::filesystem::path& path) {
  FlatBuffers buffers = moments();
  if (optimizer_.average().defined()) {
    optimizer_.begin_average();
    buffers.push_back(trained_weights());
  }
  read_flat(path, task_.parameters(), buffers);
  task_.parameters().round_to_compute();
}

void Trainer::take_moments(const std::filesystem::path& path) {
  const SafetensorsReader file(path);
  const auto told = file.metadata().find(kUpdatesOfMoments);
  ISOBAR_CHECK(told != file.metadata().end(), path.string(), " does not say how many updates its moments are of (",
               kUpdatesOfMoments, " of its metadata)");
  const std::optional<std::int64_t> updates = number_from<std::int64_t>(told->second);
  ISOBAR_CHECK(updates && *updates >= 1 && *updates <= kMostUpdates, path.string(), ": ", kUpdatesOfMoments,
               " of its metadata is ", in_quotes(told->second), ", no number of updates");
  read_flat(file, task_.parameters(), moments());
  if (optimizer_.average().defined()) optimizer_.begin_average();  // as the first update would
  optimizer_.set_updates(*updates);
  earlier_updates_ = *updates;
}

nlohmann::ordered_json Trainer::state() const {
  nlohmann::ordered_json state{{"iteration", iteration_},
                               {"updates", optimizer_.updates()},
                               {"applied_samples", applied_samples_},
                               {"loss_scale", loss_scale_.scale},
                               {"clean_updates", loss_scale_.clean_updates}};
  if (earlier_updates_ > 0) state["earlier_updates"] = earlier_updates_;
  if (loss_scale_.options.hysteresis > 1) state["overflows_left"] = loss_scale_.overflows_left;
  return state;
}

void Trainer::set_state(const nlohmann::ordered_json& state) {
  iteration_ = whole_number_in(state, "iteration", 0);
  earlier_updates_ = state.contains("earlier_updates") ? whole_number_in(state, "earlier_updates", 0, kMostUpdates) : 0;
  optimizer_.set_updates(whole_number_in(state, "updates", earlier_updates_, earlier_updates_ + iteration_));
  const std::int64_t own_updates = optimizer_.updates() - earlier_updates_;
  const std::int64_t as_constant = own_updates * options_.batch.global_batch_size;  // of older checkpoints
  applied_samples_ = state.contains("applied_samples") ? whole_number_in(state, "applied_samples", 0) : as_constant;
  loss_scale_.scale = number_in(state, "loss_scale", loss_scale_.options.min_loss_scale, LossScale::kMax);
  loss_scale_.clean_updates = whole_number_in(state, "clean_updates", 0, loss_scale_.options.loss_scale_window - 1);
  if (loss_scale_.options.hysteresis > 1)
    loss_scale_.overflows_left = whole_number_in(state, "overflows_left", 0, loss_scale_.options.hysteresis);
}

}  // namespace isobar
