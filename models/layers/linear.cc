#include "models/layers/linear.h"

namespace isobar {

static std::vector<std::string> with_suffix(std::vector<std::string> names, const char* suffix) {
  for (std::string& name : names) name += suffix;
  return names;
}

Linear::Linear(Parameters& parameters, const std::vector<std::string>& names, const LinearLayerOptions& options)
    : parameters_(parameters), tf32_(options.tf32) {
  weight_ = parameters.add({.names = with_suffix(names, ".weight"),
                            .shape = {options.out, options.in},
                            .init = {Init::Kind::normal, options.init_std},
                            .decay = true,
                            .compute_copy = true});
  if (options.bias) bias_ = parameters.add({.names = with_suffix(names, ".bias"), .shape = {options.out}, .init = {}});
}

Tensor Linear::forward(const Tensor& x, DType out_dtype, Activation activation) const {
  return linear(x, weight(), bias(), {.activation = activation, .out_dtype = out_dtype, .tf32 = tf32_});
}

}  // namespace isobar
