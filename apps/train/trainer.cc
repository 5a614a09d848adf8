#include "apps/train/trainer.h"

#include <chrono>
#include <cmath>

#include "apps/train/model_file.h"
#include "apps/train/run_state.h"
#include "engine/files/safetensors.h"
#include "engine/tape.h"
#include "kernels/cuda/runtime.h"
#include "kernels/elementwise.h"
#include "kernels/grad_norm.h"
#include "models/forecast/scores.h"

namespace isobar {
namespace {

OptimizerOptions optimizer_options(const Config& config) {
  return {.decoupled = config.optimizer == OptimizerKind::adamw,
          .beta1 = config.betas[0],
          .beta2 = config.betas[1],
          .eps = config.eps,
          .weight_decay = config.weight_decay,
          .grad_clip = config.grad_clip};
}

Schedule schedule_of(const Config& config) {
  return {
      .kind = config.lr_schedule,
      .base = scaled_rate(config.lr, config.batch_lr_scaling, config.global_batch_size, config.reference_batch_size),
      .warmup = config.warmup,
      .steps = config.num_iters};
}

// The least loss scale that still means something: below it every gradient overflows for another reason.
constexpr double kLeastLossScale = 0x1p-24;
constexpr double kLargestLossScale = 0x1p+127;

// Takes one pass over the numbers, where they lie.
bool is_norm_finite(const Tensor& flat) {
  const Tensor norm = Tensor::empty({1}, DType::fp64, flat.device());
  const Tensor workspace = Tensor::empty({kGradNormBlocks}, DType::fp64, flat.device());
  ISOBAR_RUN(flat.device(), grad_norm,
             {.n = flat.numel(),
              .dtype = flat.dtype(),
              .x = flat.data(),
              .norm = norm.data_as<double>(),
              .workspace = workspace.data_as<double>()},
             current_stream());
  return std::isfinite(norm.item());
}

}  // namespace

// A whole step recorded as a CUDA graph: it reads `batch`, which is filled before every replay.
struct Trainer::Capture {
  Batch batch;            // on the device
  double loss_scale = 0;  // baked into the graph
  gpu::Graph graph;
};

Trainer::Trainer(Forecaster& forecaster)
    : forecaster_(forecaster),
      config_(forecaster.config()),
      optimizer_(forecaster.parameters(), optimizer_options(config_)),
      schedule_(schedule_of(config_)),
      loss_scale_(LossScale::for_dtype(forecaster.parameters().activation_dtype())),
      losses_(Tensor::zeros({config_.grad_accumulation}, forecaster.parameters().dtype(), forecaster.device())) {
  if (!config_.cuda_graph) return;
  ISOBAR_CHECK(forecaster.device().kind == DeviceKind::cuda, "cuda_graph: needs an NVIDIA GPU");
  ISOBAR_CHECK(config_.dropout == 0,
               "cuda_graph: a captured step draws the same dropout mask again and again; set dropout to 0");
  ISOBAR_CHECK(config_.grad_accumulation == 1, "cuda_graph: works with grad_accumulation 1 only");
}

Trainer::~Trainer() = default;

// dL/dL times the loss scale, in the loss's own dtype.
Tensor Trainer::seed_gradient(double value) const {
  const Tensor seed = Tensor::empty({1}, losses_.dtype(), losses_.device());
  ISOBAR_RUN(seed.device(), fill, {.n = 1, .dtype = seed.dtype(), .value = value, .y = seed.data()}, current_stream());
  return seed;
}

void Trainer::accumulate(const Batch& batch, std::int64_t part, double seed) {
  // Masks of different iterations and parts come from streams of their own (models/vit/vit.h: at least 2^16 apart).
  const auto stream = static_cast<std::uint64_t>(iteration_ * config_.grad_accumulation + part) << 16;
  const VitMode mode{true, {static_cast<std::uint64_t>(config_.seed), stream}};
  Tape tape;
  Tensor loss;
  {
    const gpu::Range range("forward");
    const MemoryScope memory("activations");
    const TapeScope recording(tape);
    loss = forecaster_.loss(forecaster_.forecast(forecaster_.input_of(batch), mode), forecaster_.target_of(batch));
  }
  losses_.slice(part, {1}).copy_from(loss);
  const gpu::Range range("backward");
  tape.backward(loss, seed_gradient(seed));
}

void Trainer::run_eager(const NextBatch& next) {
  forecaster_.parameters().begin_step();
  for (std::int64_t part = 0; part < config_.grad_accumulation; ++part) {
    const std::shared_ptr<const LoadedBatch> loaded = next();
    Batch batch;
    {
      const gpu::Range range("data copy in " + std::to_string(iteration_));
      batch = to_device(loaded->tensors, forecaster_.device());
    }
    accumulate(batch, part, loss_scale_.scale / static_cast<double>(config_.grad_accumulation));
  }
  forecaster_.parameters().finish_gradients();
  const gpu::Range range("optimizer");
  optimizer_.launch(loss_scale_.scale);
}

void Trainer::run_captured(const NextBatch& next) {
  const std::shared_ptr<const LoadedBatch> loaded = next();
  if (!capture_ || capture_->loss_scale != loss_scale_.scale) {
    auto capture = std::make_unique<Capture>();
    capture->batch = to_device(loaded->tensors, forecaster_.device());
    capture->loss_scale = loss_scale_.scale;
    gpu::begin_capture(current_stream());
    forecaster_.parameters().begin_step();
    accumulate(capture->batch, 0, loss_scale_.scale);
    forecaster_.parameters().finish_gradients();
    optimizer_.launch(loss_scale_.scale);
    capture->graph = gpu::end_capture(current_stream());
    capture_ = std::move(capture);
  } else {
    copy_into(capture_->batch, loaded->tensors);
  }
  capture_->graph.launch(current_stream());
}

StepResult Trainer::step(const NextBatch& next) {
  const gpu::Range range("step " + std::to_string(iteration_));
  StepResult result{.lr = schedule_.at(iteration_), .loss_scale = loss_scale_.scale};
  optimizer_.prepare(result.lr);
  const NextBatch timed = [&] {
    const auto start = std::chrono::steady_clock::now();
    std::shared_ptr<const LoadedBatch> batch = next();
    result.data_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return batch;
  };
  // The first step runs as it is, so that libraries have loaded and chosen their algorithms before one is captured.
  if (config_.cuda_graph && iteration_ > 0)
    run_captured(timed);
  else
    run_eager(timed);
  const UpdateResult update = optimizer_.result(loss_scale_.scale);
  for (const double loss : losses_.to_vector()) result.loss += loss / static_cast<double>(losses_.numel());
  ++iteration_;
  result.grad_norm = update.grad_norm;
  result.applied = update.applied;
  ISOBAR_CHECK(std::isfinite(result.loss), "iteration ", iteration_, ": the loss is ", result.loss,
               "; a lower lr, warmup or grad_clip may help");
  ISOBAR_CHECK(update.applied || loss_scale_.dynamic, "iteration ", iteration_,
               ": a gradient is not finite; a lower lr, warmup or grad_clip may help");
  loss_scale_.update(update.applied);
  ISOBAR_CHECK(loss_scale_.scale >= kLeastLossScale, "iteration ", iteration_,
               ": fp16 gradients overflow at every loss scale; use amp_mode bf16");
  return result;
}

std::optional<Validation> Trainer::validate(Loader& loader, const std::function<bool()>& stop) {
  const TapeScope off(nullptr);
  const MemoryScope memory("validation");
  const std::int64_t pixels = config_.img_size[0] * config_.img_size[1];
  ScoreTotals forecast_totals(config_.n_out_channels, pixels), persistence_totals(config_.n_out_channels, pixels);
  const bool with_persistence = persistence_rmse_.empty();
  double loss_sum = 0;
  loader.seek({0, 0});
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    if (stop()) return std::nullopt;
    const std::shared_ptr<const LoadedBatch> loaded = loader.next();
    const Batch batch = to_device(loaded->tensors, forecaster_.device());
    const Tensor input = forecaster_.input_of(batch), target = forecaster_.target_of(batch);
    const Tensor forecast = forecaster_.forecast(input);
    loss_sum += forecaster_.loss(forecast, target).item() * static_cast<double>(batch_size(batch));
    forecast_totals.add(forecaster_.scores(forecast, target));
    if (with_persistence) persistence_totals.add(forecaster_.scores(forecaster_.persistence_of(input), target));
  }
  if (with_persistence) persistence_rmse_ = persistence_totals.rmse();
  const double loss = loss_sum / static_cast<double>(forecast_totals.samples());
  ISOBAR_CHECK(std::isfinite(loss), "iteration ", iteration_, ": the validation loss is ", loss,
               iteration_ > 0 ? "; a lower lr, warmup or grad_clip may help" : " before any update");
  return Validation{.loss = loss,
                    .rmse = forecast_totals.rmse(),
                    .persistence_rmse = persistence_rmse_,
                    .mean_sample_rmse = forecast_totals.mean_sample_rmse()};
}

void Trainer::check_finite() const {
  const Parameters& parameters = forecaster_.parameters();
  const FlatBuffers buffers{{"", parameters.weights()}, {"m.", optimizer_.m()}, {"v.", optimizer_.v()}};
  for (const auto& [prefix, buffer] : buffers) {
    if (is_norm_finite(buffer)) continue;
    for (const NamedParameter& p : parameters.named())
      ISOBAR_CHECK(is_finite(buffer.slice(p.offset, p.shape)), "iteration ", iteration_, ": ", prefix, p.name,
                   " is not finite after the update; a lower lr, warmup or grad_clip may help");
  }
}

void Trainer::write_optimizer(const std::filesystem::path& path) const {
  write_flat(path, forecaster_.parameters(), {{"m.", optimizer_.m()}, {"v.", optimizer_.v()}}, {});
}

void Trainer::read_optimizer(const std::filesystem::path& path) {
  read_flat(path, forecaster_.parameters(), {{"m.", optimizer_.m()}, {"v.", optimizer_.v()}});
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
  loss_scale_.scale = number_in(state, "loss_scale", kLeastLossScale, kLargestLossScale);
  loss_scale_.clean_updates = whole_number_in(state, "clean_updates", 0, loss_scale_.interval - 1);
}

}  // namespace isobar
