#include "models/layers/mlp.h"

namespace isobar {

Mlp::Mlp(Parameters& parameters, const std::string& name, const MlpOptions& options)
    : options_(options),
      fc1_(parameters, {name + ".fc1"}, {.in = options.width, .out = options.hidden, .tf32 = options.tf32}),
      fc2_(parameters, {name + ".fc2"}, {.in = options.hidden, .out = options.width, .tf32 = options.tf32}) {}

Tensor Mlp::forward(const Tensor& x, std::int64_t batch, const Context& context) const {
  const float rate = context.rate(options_.dropout);
  if (rate == 0)  // one op, which keeps the hidden channels once instead of twice
    return mlp(x, fc1_.weight(), fc1_.bias(), fc2_.weight(), fc2_.bias(),
               {.activation = options_.activation, .out_dtype = x.dtype(), .tf32 = options_.tf32});
  const PassBlock& block = context.block;
  Tensor hidden = fc1_.forward(x, x.dtype(), options_.activation);
  hidden = dropout(hidden, rate, context.mask(0), block.elements(hidden, batch, PassBlock::Rows::all, block.hidden));
  const Tensor y = fc2_.forward(hidden, x.dtype());
  return dropout(y, rate, context.mask(1), block.elements(y, batch, PassBlock::Rows::own));
}

}  // namespace isobar
