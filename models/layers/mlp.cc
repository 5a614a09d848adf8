#include "models/layers/mlp.h"

#include "comm/ops.h"

namespace isobar {

static Part hidden_of_rank(const MlpOptions& options, const Parallel& parallel) {
  ISOBAR_CHECK(options.hidden > Mlp::kTogether * (parallel.tp.size() - 1), "mlp: ", parallel.tp.size(),
               " tensor-parallel ranks share ", options.hidden, " hidden channels in groups of ", Mlp::kTogether,
               ", and each needs one group");
  return parallel.over_tp(options.hidden, Mlp::kTogether);
}

Mlp::Mlp(Parameters& parameters, const std::string& name, const MlpOptions& options, const Parallel& parallel)
    : options_(options),
      parallel_(parallel),
      hidden_(hidden_of_rank(options, parallel)),
      fc1_(parameters, {name + ".fc1"},
           {.in = options.width,
            .out = options.hidden,
            .tf32 = options.tf32,
            .part = LinearPart{LinearPart::Of::outputs, hidden_}}),
      fc2_(parameters, {name + ".fc2"},
           {.in = options.hidden,
            .out = options.width,
            .tf32 = options.tf32,
            .part = LinearPart{LinearPart::Of::inputs, hidden_},
            .bias_sharing = parallel.sharing_between_branches()}) {}

Tensor Mlp::forward(const Tensor& x, std::int64_t batch, const Context& context) const {
  const float rate = context.rate(options_.dropout);
  PassBlock block = context.block;
  if (parallel_.tp.size() > 1) block.hidden = {hidden_.begin, options_.hidden};
  const std::int64_t rows = block.row_count(x, batch);
  const LinearOptions first{.activation = options_.activation, .out_dtype = x.dtype(), .tf32 = options_.tf32};
  if (rate == 0)  // one op, which keeps the hidden channels once instead of twice
    return parallel_mlp(x, rows, fc1_.weight(), fc1_.bias(), fc2_.weight(), fc2_.bias(), first, parallel_);
  Tensor hidden = column_linear(x, rows, fc1_.weight(), fc1_.bias(), first, parallel_);
  hidden = dropout(hidden, rate, context.mask(0), block.elements(hidden, batch, PassBlock::Rows::all, block.hidden));
  const Tensor y =
      row_linear(hidden, fc2_.weight(), fc2_.bias(), {.out_dtype = x.dtype(), .tf32 = options_.tf32}, parallel_);
  return dropout(y, rate, context.mask(1), block.elements(y, batch, PassBlock::Rows::own));
}

}  // namespace isobar
