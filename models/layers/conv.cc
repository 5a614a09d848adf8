#include "models/layers/conv.h"

#include <cmath>

namespace isobar {
namespace {

// The weight is [first, second, K] in files.
int add_weight(const Build& build, const std::string& name, const ConvSpec& spec, std::int64_t first,
               std::int64_t second) {
  Shape shape{first, second};
  shape.insert(shape.end(), spec.kernel.begin(), spec.kernel.end());
  Init init{Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(numel_of(shape) / first))};
  if (spec.init) init = {Init::Kind::normal, spec.init->scale};
  if (spec.zero) init = {};
  return build.parameters.add({.names = {name + ".weight"},
                               .shape = shape,
                               .init = init,
                               .decay = true,
                               .compute_copy = true,
                               .order = MemoryOrder::channels_last});
}

int add_bias(const Build& build, const std::string& name, const ConvSpec& spec, std::int64_t second) {
  const std::int64_t inputs = second * numel_of({spec.kernel.begin(), spec.kernel.end()});
  Init init{Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(inputs))};
  if (spec.init) init = {Init::Kind::constant, spec.init->bias};
  if (spec.zero) init = {};
  return build.parameters.add({.names = {name + ".bias"}, .shape = {spec.out}, .init = init});
}

ConvOptions options_of(const ConvSpec& spec, DType out_dtype, bool tf32) {
  return {.stride = spec.stride,
          .pad = spec.pad,
          .edge = spec.edge,
          .activation = spec.activation,
          .out_dtype = out_dtype,
          .tf32 = tf32};
}

}  // namespace

Conv::Conv(const Build& build, const std::string& name, const ConvSpec& spec)
    : parameters_(build.parameters),
      spec_(spec),
      tf32_(build.compute.may_use_tf32()),
      weight_(add_weight(build, name, spec, spec.out, spec.in)),
      bias_(add_bias(build, name, spec, spec.in)) {}

Tensor Conv::operator()(const Tensor& x) const {
  return conv(x, parameters_.get(weight_), parameters_.get(bias_),
              options_of(spec_, spec_.wide ? parameters_.dtype() : x.dtype(), tf32_));
}

ConvTranspose::ConvTranspose(const Build& build, const std::string& name, const ConvSpec& spec)
    : parameters_(build.parameters),
      spec_(spec),
      tf32_(build.compute.may_use_tf32()),
      weight_(add_weight(build, name, spec, spec.in, spec.out)),
      bias_(add_bias(build, name, spec, spec.out)) {}

Tensor ConvTranspose::operator()(const Tensor& x) const {
  return conv_transpose(x, parameters_.get(weight_), parameters_.get(bias_),
                        options_of(spec_, spec_.wide ? parameters_.dtype() : x.dtype(), tf32_));
}

}  // namespace isobar
