#include "engine/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/adam.h"
#include "kernels/cuda/runtime.h"
#include "kernels/grad_norm.h"

namespace isobar {

LossScale LossScale::for_dtype(DType activation) {
  if (activation == DType::fp16) return {.scale = 65536, .dynamic = true};
  return {};
}

void LossScale::update(bool finite) {
  if (!dynamic) return;
  if (!finite) {
    scale *= 0.5;
    clean_updates = 0;
  } else if (++clean_updates == interval) {
    scale = std::min(2 * scale, kMax);
    clean_updates = 0;
  }
}

KeyTable OptimizerOptions::keys() {
  return {"The optimizer",
          {key("optimizer", kind, "adamw decays weight matrices only").also_called({"opt"}),
           key("betas", betas, "decay of Adam's two moments").fraction(),
           key("eps", eps, "added to the root of Adam's second moment").greater_than(0),
           key("weight_decay", weight_decay,
               "of the weight matrices: by adamw from the weights, by adam from their gradients")
               .at_least(0)
               .also_called({"wd"}),
           key("grad_clip", grad_clip, "largest norm of all gradients together; 0: no clipping")
               .at_least(0)
               .also_called({"gradientclipval", "maxgradnorm", "clip"})}};
}

Optimizer::Optimizer(Parameters& parameters, OptimizerOptions options)
    : Optimizer(parameters, options, {{{0, parameters.weights().numel()}}}) {}

Optimizer::Optimizer(Parameters& parameters, OptimizerOptions options, std::vector<OwnedRange> ranges, AddUp add_up)
    : parameters_(parameters), options_(options), ranges_(std::move(ranges)), add_up_(std::move(add_up)) {
  const MemoryScope scope("optimizer");
  const Tensor& weights = parameters.weights();
  std::int64_t owned = 0, last = 0;
  for (const auto& [range, factor] : ranges_) {
    ISOBAR_CHECK(range.first >= last && range.end >= range.first && range.end <= weights.numel(),
                 "the optimizer's range [", range.first, ", ", range.end, ") does not follow element ", last, " of ",
                 weights.numel());
    owned += range.size();
    last = range.end;
  }
  m_ = Tensor::zeros({owned}, weights.dtype(), weights.device());
  v_ = Tensor::zeros({owned}, weights.dtype(), weights.device());
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

void Optimizer::launch(double lr, double loss_scale) {
  const Device device = parameters_.device();
  const Tensor& grads = parameters_.grads();
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const auto& [range, factor] = ranges_[i];
    ISOBAR_RUN(device, sum_of_squares,
               {.n = range.size(),
                .dtype = grads.dtype(),
                .factor = factor,
                .x = grads.slice(range.first, {range.size()}).data(),
                .sum = sums_.data_as<double>() + i,
                .workspace = workspace_.data_as<double>()},
               current_stream());
  }
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
              .decay_end = std::clamp<std::int64_t>(parameters_.decay_end() - range.first, 0, n),
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
              .compute = compute.defined() ? compute.slice(range.first, {n}).data() : nullptr},
             current_stream());
}

UpdateResult Optimizer::result(double loss_scale) {
  gpu::synchronize(parameters_.device(), current_stream());
  const double norm = norm_read_.values()[0] / loss_scale;
  const bool applied = std::isfinite(norm);
  if (applied) ++updates_;
  return {applied, norm};
}

}  // namespace isobar
