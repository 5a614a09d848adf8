#include "engine/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/adam.h"
#include "kernels/common/run.h"
#include "kernels/cuda/runtime.h"
#include "kernels/grad_norm.h"

namespace isobar {

LossScale LossScale::for_dtype(DType activation, const LossScaleOptions& options) {
  if (activation != DType::fp16) return {};
  return {
      .scale = options.initial_loss_scale, .dynamic = true, .options = options, .overflows_left = options.hysteresis};
}

void LossScale::update(bool finite) {
  if (!dynamic) return;
  if (!finite) {
    overflows_left = std::max<std::int64_t>(overflows_left - 1, 0);
    if (overflows_left == 0) scale *= options.loss_scale_backoff;
    clean_updates = 0;
  } else if (++clean_updates == options.loss_scale_window) {
    scale = std::min(options.loss_scale_growth * scale, kMax);
    overflows_left = options.hysteresis;
    clean_updates = 0;
  }
}

KeyTable LossScaleOptions::keys() {
  constexpr double kMaxGrowth = 65536;
  return {
      "The loss scale of fp16",
      {key("initial_loss_scale", initial_loss_scale, "the scale that a run begins with")
           .within(LossScale::kMin, LossScale::kMax)
           .also_called({"lossscale", "initscale"}),
       key("min_loss_scale", min_loss_scale, "a run whose gradients overflow at every scale down to this one ends")
           .within(LossScale::kMin, LossScale::kMax)
           .also_called({"minlossscale"}),
       key("loss_scale_window", loss_scale_window, "updates in a row without an overflow before the scale grows")
           .at_least(1)
           .also_called({"growthinterval"}),
       key("loss_scale_growth", loss_scale_growth, "the factor by which it grows; 1: never")
           .within(1, kMaxGrowth)
           .also_called({"growthfactor"}),
       key("loss_scale_backoff", loss_scale_backoff, "the factor by which an overflow lowers it")
           .greater_than(0)
           .also_called({"backofffactor"}),
       key("hysteresis", hysteresis, "overflows since it last grew, of which the last one and all later ones lower it")
           .at_least(1)},
      [this](const KeyOrigins& origins) {
        ISOBAR_CHECK(min_loss_scale <= initial_loss_scale, origins.where("min_loss_scale"),
                     " must be at most initial_loss_scale (", initial_loss_scale, "), not ", min_loss_scale);
        ISOBAR_CHECK(loss_scale_backoff < 1, origins.where("loss_scale_backoff"), " must be below 1, not ",
                     loss_scale_backoff);
      }};
}

KeyTable OptimizerOptions::keys() {
  return {"The optimizer",
          {key("optimizer", kind, "adamw decays the weights themselves, adam adds the decay to their gradients")
               .also_called({"opt"}),
           key("betas", betas, "decay of Adam's two moments").fraction(),
           key("eps", eps, "added to the root of Adam's second moment").greater_than(0),
           key("weight_decay", weight_decay,
               "of the weight matrices: by adamw from the weights, by adam from their gradients")
               .at_least(0)
               .also_called({"wd"}),
           key("weight_decay_on", weight_decay_on,
               "matrices: weight matrices and embeddings; all: biases, norms and everything else too"),
           key("weight_decay_schedule", weight_decay_schedule,
               "how weight_decay goes to end_weight_decay over the run: not at all, linearly, or by half a cosine")
               .also_called({"weightdecayincrstyle"}),
           key("end_weight_decay", end_weight_decay, "at the end of the run; see weight_decay_schedule")
               .at_least(0)
               .also_called({"endweightdecay"}),
           key("grad_clip", grad_clip, "largest norm of all gradients together; 0: no clipping")
               .at_least(0)
               .also_called({"gradientclipval", "maxgradnorm", "clip"}),
           key("ema", ema,
               "0.9999: an exponential moving average of the weights is validated and saved as the model; the weights "
               "themselves lie in optimizer.safetensors as w.NAME; 0: no average")
               .fraction()
               .also_called({"emadecay", "useema"})}};
}

Optimizer::Optimizer(Parameters& parameters, OptimizerOptions options)
    : Optimizer(parameters, options, {{{0, parameters.grads().numel()}}}) {}

Optimizer::Optimizer(Parameters& parameters, OptimizerOptions options, std::vector<OwnedRange> ranges,
                     SumOverRanks add_up)
    : parameters_(parameters), options_(options), ranges_(std::move(ranges)), add_up_(std::move(add_up)) {
  const MemoryScope scope("optimizer");
  const Tensor& weights = parameters.weights();
  const std::int64_t trained = parameters.grads().numel();
  std::int64_t owned = 0, last = 0;
  for (const auto& [range, factor] : ranges_) {
    ISOBAR_CHECK(range.first >= last && range.end >= range.first && range.end <= trained, "the optimizer's range [",
                 range.first, ", ", range.end, ") does not follow element ", last, " of the ", trained,
                 " that are trained");
    owned += range.size();
    last = range.end;
  }
  m_ = Tensor::zeros({owned}, weights.dtype(), weights.device());
  v_ = Tensor::zeros({owned}, weights.dtype(), weights.device());
  if (options_.ema > 0) average_ = Tensor::zeros({owned}, weights.dtype(), weights.device());
  sums_ = Tensor::empty({std::ssize(ranges_)}, DType::fp64, weights.device());
  norm_ = Tensor::empty({1}, DType::fp64, weights.device());
  grad_scale_ = Tensor::empty({1}, DType::fp64, weights.device());
  workspace_ = Tensor::empty({kSumOfSquaresBlocks}, DType::fp64, weights.device());
  norm_read_ = Readback(norm_);
}

std::vector<FlatRange> Optimizer::ranges() const {
  std::vector<FlatRange> ranges;
  for (const OwnedRange& owned : ranges_) ranges.push_back(owned.range);
  return ranges;
}

// One sum a range of the owned ones, of a buffer in the layout of the parameters.
void Optimizer::launch_sums_of_squares(const Tensor& values) {
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const auto& [range, factor] = ranges_[i];
    ISOBAR_RUN(parameters_.device(), sum_of_squares,
               {.n = range.size(),
                .dtype = values.dtype(),
                .factor = factor,
                .x = values.slice(range.first, {range.size()}).data(),
                .sum = sums_.data_as<double>() + i,
                .workspace = workspace_.data_as<double>()},
               current_stream());
  }
}

// The sum of numbers of the ranges, over all processes.
double Optimizer::added_up(const std::vector<double>& of_ranges) {
  sums_.set_values(of_ranges);
  if (add_up_) add_up_(sums_);
  double sum = 0;
  for (const double value : sums_.to_vector()) sum += value;
  return sum;
}

double Optimizer::weights_norm() {
  launch_sums_of_squares(parameters_.weights());
  return std::sqrt(added_up(sums_.to_vector()));
}

// The padding between parameters has no gradients but zeros, and is not counted.
double Optimizer::gradient_zeros() {
  std::vector<double> zeros, elements;
  for (const auto& [range, factor] : ranges_) {
    const std::vector<double> values = parameters_.grads().slice(range.first, {range.size()}).to_vector();
    zeros.push_back(factor * static_cast<double>(std::ranges::count(values, 0.0)));
    elements.push_back(factor * static_cast<double>(range.size()));
  }
  const auto trained = static_cast<double>(parameters_.count() - parameters_.frozen_count());
  return added_up(zeros) - (added_up(elements) - trained);
}

void Optimizer::launch(double lr, double loss_scale) {
  const Device device = parameters_.device();
  launch_sums_of_squares(parameters_.grads());
  if (add_up_) add_up_(sums_);
  ISOBAR_RUN(device, clip_coefficient,
             {.count = sums_.numel(),
              .sums = sums_.data_as<double>(),
              .unscale = 1 / loss_scale,
              .max_norm = options_.grad_clip,
              .norm = norm_.data_as<double>(),
              .grad_scale = grad_scale_.data_as<double>()},
             current_stream());
  norm_read_.begin();
  if (average_.defined() && updates_ == 0) begin_average();
  std::int64_t moments_at = 0;
  for (const OwnedRange& owned : ranges_) {
    launch_adam(owned.range, moments_at, lr);
    moments_at += owned.range.size();
  }
}

void Optimizer::launch_adam(FlatRange range, std::int64_t moments_at, double lr) const {
  const auto update = static_cast<double>(updates_ + 1);
  const std::int64_t n = range.size();
  const Tensor &weights = parameters_.weights(), &compute = parameters_.compute();
  ISOBAR_RUN(parameters_.device(), adam,
             {.n = n,
              .decay_end = options_.weight_decay_on == DecayedWeights::all
                               ? n
                               : std::clamp<std::int64_t>(parameters_.decay_end() - range.first, 0, n),
              .dtype = weights.dtype(),
              .compute_dtype = compute.defined() ? compute.dtype() : weights.dtype(),
              .lr = lr,
              .bias1 = 1 - std::pow(options_.betas[0], update),
              .bias2 = 1 - std::pow(options_.betas[1], update),
              .beta1 = options_.betas[0],
              .beta2 = options_.betas[1],
              .eps = options_.eps,
              .weight_decay = options_.weight_decay,
              .decoupled = options_.kind == OptimizerKind::adamw,
              .grad_scale = grad_scale_.data_as<double>(),
              .grad = parameters_.grads().slice(range.first, {n}).data(),
              .weight = weights.slice(range.first, {n}).data(),
              .m = m_.slice(moments_at, {n}).data(),
              .v = v_.slice(moments_at, {n}).data(),
              .compute = compute.defined() ? compute.slice(range.first, {n}).data() : nullptr,
              .average_rate = 1 - std::min(options_.ema, (1 + update) / (10 + update)),
              .average = average_.defined() ? average_.slice(moments_at, {n}).data() : nullptr},
             current_stream());
}

template <class Visit>
void Optimizer::visit_average(const Visit& visit) const {
  std::int64_t at = 0;
  for (const auto& [range, factor] : ranges_) {
    if (range.size() > 0)
      visit(parameters_.weights().slice(range.first, {range.size()}), average_.slice(at, {range.size()}));
    at += range.size();
  }
}

void Optimizer::begin_average() const {
  visit_average([](const Tensor& weights, Tensor average) { average.copy_from(weights); });
}

// In pieces, so that no third buffer is needed.
void Optimizer::swap_average() const {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  visit_average([&](const Tensor& weights, const Tensor& average) {
    for (std::int64_t at = 0; at < weights.numel(); at += kPiece) {
      const Shape piece{std::min(kPiece, weights.numel() - at)};
      Tensor here = weights.slice(at, piece), there = average.slice(at, piece);
      Tensor kept = Tensor::empty(piece, here.dtype(), here.device());
      kept.copy_from(here);
      here.copy_from(there);
      there.copy_from(kept);
    }
  });
}

UpdateResult Optimizer::result(double loss_scale) {
  gpu::synchronize(parameters_.device(), current_stream());
  const double norm = norm_read_.values()[0] / loss_scale;
  const bool applied = std::isfinite(norm);
  if (applied) ++updates_;
  return {applied, norm};
}

}  // namespace isobar
