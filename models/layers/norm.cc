#include "models/layers/norm.h"

namespace isobar {

LayerNorm::LayerNorm(Parameters& parameters, const std::string& name, std::int64_t width, double eps, Sharing sharing)
    : parameters_(parameters),
      weight_(parameters.add(
          {.names = {name + ".weight"}, .shape = {width}, .init = {Init::Kind::constant, 1}, .sharing = sharing})),
      bias_(parameters.add({.names = {name + ".bias"}, .shape = {width}, .init = {}, .sharing = sharing})),
      eps_(eps) {}

LayernormResult LayerNorm::forward(const Tensor& x, const Tensor& branch) const {
  const Tensor &weight = parameters_.get(weight_), &bias = parameters_.get(bias_);
  if (branch.defined()) return layernorm_residual(x, branch, weight, bias, eps_);
  return {x, layernorm(x, weight, bias, eps_, parameters_.activation_dtype())};
}

}  // namespace isobar
