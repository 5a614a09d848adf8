#include "models/layers/mlp.h"

namespace isobar {

Mlp::Mlp(Parameters& parameters, const std::string& name, const MlpOptions& options)
    : options_(options),
      fc1_(parameters, {name + ".fc1"}, {.in = options.width, .out = options.hidden, .tf32 = options.tf32}),
      fc2_(parameters, {name + ".fc2"}, {.in = options.hidden, .out = options.width, .tf32 = options.tf32}) {}

Tensor Mlp::forward(const Tensor& x, const Context& context) const {
  const float rate = context.rate(options_.dropout);
  if (rate == 0)  // one op, which keeps the hidden channels once instead of twice
    return mlp(x, fc1_.weight(), fc1_.bias(), fc2_.weight(), fc2_.bias(),
               {.activation = options_.activation, .out_dtype = x.dtype(), .tf32 = options_.tf32});
  const Tensor hidden = dropout(fc1_.forward(x, x.dtype(), options_.activation), rate, context.mask(0));
  return dropout(fc2_.forward(hidden, x.dtype()), rate, context.mask(1));
}

}  // namespace isobar
