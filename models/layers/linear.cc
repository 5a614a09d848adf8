#include "models/layers/linear.h"

#include <utility>

namespace isobar {

static std::vector<std::string> with_suffix(std::vector<std::string> names, const char* suffix) {
  for (std::string& name : names) name += suffix;
  return names;
}

Linear::Linear(Parameters& parameters, const std::vector<std::string>& names, const LinearLayerOptions& options)
    : parameters_(parameters), tf32_(options.tf32) {
  ParameterSpec weight{.names = with_suffix(names, ".weight"),
                       .shape = {options.out, options.in},
                       .init = {Init::Kind::normal, options.init_std},
                       .decay = true,
                       .compute_copy = true};
  ParameterSpec bias{.names = with_suffix(names, ".bias"), .shape = {options.out}, .init = {}};
  bias.sharing = options.bias_sharing;
  if (options.part) {
    const auto& [of, part] = *options.part;
    const int axis = of == LinearPart::Of::outputs ? 0 : 1;
    if (part != Part{0, weight.shape[axis]}) {
      weight.sharing = Sharing::shard;
      weight.shard = {.axis = axis, .begin = part.begin, .end = part.end};
      is_part_of_sum_ = axis == 1;
    }
    if (axis == 0) {
      bias.sharing = weight.sharing;
      bias.shard = weight.shard;
    }
  }
  weight_ = parameters.add(std::move(weight));
  if (options.bias) bias_ = parameters.add(std::move(bias));
}

Tensor Linear::forward(const Tensor& x, DType out_dtype, Activation activation) const {
  ISOBAR_CHECK(!is_part_of_sum_, "a linear layer of which a rank holds some of the inputs needs the other ranks");
  return linear(x, weight(), bias(), {.activation = activation, .out_dtype = out_dtype, .tf32 = tf32_});
}

}  // namespace isobar
