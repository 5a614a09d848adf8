#include "models/layers/conv.h"

#include <cmath>

namespace isobar {

Conv::Conv(const Build& build, const std::string& name, const ConvSpec& spec)
    : parameters_(build.parameters), spec_(spec), tf32_(build.compute.may_use_tf32()) {
  Shape shape{spec.out, spec.in};
  shape.insert(shape.end(), spec.kernel.begin(), spec.kernel.end());
  const std::int64_t inputs = numel_of(shape) / spec.out;
  const Init init = spec.zero ? Init{} : Init{Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(inputs))};
  weight_ = build.parameters.add({.names = {name + ".weight"},
                                  .shape = shape,
                                  .init = init,
                                  .decay = true,
                                  .compute_copy = true,
                                  .order = MemoryOrder::channels_last});
  bias_ = build.parameters.add({.names = {name + ".bias"}, .shape = {spec.out}, .init = init});
}

Tensor Conv::operator()(const Tensor& x) const {
  return conv(x, parameters_.get(weight_), parameters_.get(bias_),
              {.stride = spec_.stride,
               .pad = spec_.pad,
               .edge = spec_.edge,
               .activation = spec_.activation,
               .out_dtype = spec_.wide ? parameters_.dtype() : x.dtype(),
               .tf32 = tf32_});
}

}  // namespace isobar
