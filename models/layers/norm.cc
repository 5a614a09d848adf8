#include "models/layers/norm.h"

namespace isobar {

// Between branches, ranks may have different rows of the stream: then each rank's gradients of weight and bias are
// terms of a sum.
LayerNorm::LayerNorm(const Build& build, const std::string& name, std::int64_t width, double eps, bool bias)
    : parameters_(build.parameters),
      weight_(build.parameters.add({.names = {name + ".weight"},
                                    .shape = {width},
                                    .init = {Init::Kind::constant, 1},
                                    .sharing = build.parallel.sharing_between_branches()})),
      eps_(eps) {
  if (!bias) return;
  bias_ = build.parameters.add(
      {.names = {name + ".bias"}, .shape = {width}, .init = {}, .sharing = build.parallel.sharing_between_branches()});
}

LayernormResult LayerNorm::operator()(const Residual& in) const {
  const Tensor& weight = parameters_.get(weight_);
  const Tensor bias = bias_ < 0 ? Tensor() : parameters_.get(bias_);
  if (in.branch.defined()) return layernorm_residual(in.x, in.branch, weight, bias, eps_);
  if (in.is_joined) return layernorm_stream(in.x, weight, bias, eps_, parameters_.activation_dtype());
  return {in.x, layernorm(in.x, weight, bias, eps_, parameters_.activation_dtype())};
}

}  // namespace isobar
