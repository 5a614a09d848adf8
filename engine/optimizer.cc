#include "engine/optimizer.h"

#include <cmath>

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
    scale *= 2;
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

Optimizer::Optimizer(Parameters& parameters, OptimizerOptions options) : parameters_(parameters), options_(options) {
  const MemoryScope scope("optimizer");
  const Tensor& weights = parameters.weights();
  m_ = Tensor::zeros(weights.shape(), weights.dtype(), weights.device());
  v_ = Tensor::zeros(weights.shape(), weights.dtype(), weights.device());
  scalars_ = Tensor::empty({sizeof(AdamScalars) / sizeof(double)}, DType::fp64, weights.device());
  norm_ = Tensor::empty({1}, DType::fp64, weights.device());
  workspace_ = Tensor::empty({kGradNormBlocks}, DType::fp64, weights.device());
}

void Optimizer::prepare(double lr) {
  const auto t = static_cast<double>(updates_ + 1);
  const AdamScalars scalars{.lr = lr,
                            .bias1 = 1 - std::pow(options_.betas[0], t),
                            .bias2 = 1 - std::pow(options_.betas[1], t),
                            .grad_scale = 1};
  copy_bytes(scalars_.data(), scalars_.device(), &scalars, Device{}, sizeof scalars);
}

void Optimizer::launch(double loss_scale) {
  const Device device = parameters_.device();
  const Tensor& weights = parameters_.weights();
  const Tensor& grads = parameters_.grads();
  auto* scalars = static_cast<AdamScalars*>(scalars_.data());
  ISOBAR_RUN(device, grad_norm,
             {.n = grads.numel(),
              .dtype = grads.dtype(),
              .x = grads.data(),
              .norm = norm_.data_as<double>(),
              .workspace = workspace_.data_as<double>()},
             current_stream());
  ISOBAR_RUN(device, clip_coefficient,
             {.norm = norm_.data_as<double>(),
              .unscale = 1 / loss_scale,
              .max_norm = options_.grad_clip,
              .grad_scale = &scalars->grad_scale},
             current_stream());
  const Tensor& compute = parameters_.compute();
  ISOBAR_RUN(device, adam,
             {.n = weights.numel(),
              .decay_end = parameters_.decay_end(),
              .dtype = weights.dtype(),
              .compute_dtype = compute.defined() ? compute.dtype() : weights.dtype(),
              .beta1 = options_.betas[0],
              .beta2 = options_.betas[1],
              .eps = options_.eps,
              .weight_decay = options_.weight_decay,
              .decoupled = options_.kind == OptimizerKind::adamw,
              .scalars = scalars,
              .grad = grads.data(),
              .weight = weights.data(),
              .m = m_.data(),
              .v = v_.data(),
              .compute = compute.defined() ? compute.data() : nullptr},
             current_stream());
}

UpdateResult Optimizer::result(double loss_scale) {
  const double norm = norm_.item() / loss_scale;
  const bool applied = std::isfinite(norm);
  if (applied) ++updates_;
  return {applied, norm};
}

}  // namespace isobar
