#include "models/layers/mlp.h"

#include "comm/ops.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

MlpSpec checked(const MlpSpec& spec, const Parallel& parallel) {
  ISOBAR_CHECK(spec.hidden > Mlp::kChannelMultiple * (parallel.tp.size() - 1), "mlp: ", parallel.tp.size(),
               " tensor-parallel ranks share ", spec.hidden, " hidden channels in groups of ", Mlp::kChannelMultiple,
               ", and each needs one group");
  return spec;
}

}  // namespace

Mlp::Mlp(const Build& build, const std::string& name, const MlpSpec& spec)
    : parallel_(build.parallel),
      spec_(checked(spec, build.parallel)),
      tf32_(build.compute.may_use_tf32()),
      stream_(build),
      fc1_(build, {name + ".fc1"},
           {.in = spec.width,
            .out = spec.hidden,
            .bias = spec.bias,
            .init_std = spec.init_std,
            .split = Split::outputs,
            .multiple = kChannelMultiple}),
      fc2_(build, {name + ".fc2"},
           {.in = spec.hidden,
            .out = spec.width,
            .bias = spec.bias,
            .init_std = spec.fc2_init_std,
            .split = Split::inputs,
            .multiple = kChannelMultiple}) {
  build.note_over_tp("hidden units", parallel_.over_tp(spec.hidden, kChannelMultiple), spec.hidden);
}

Tensor Mlp::operator()(const Tensor& x, Pass& pass) const {
  if (pass.rate(spec_.hidden_dropout) == 0) return stream_.drop(fused(x, pass), spec_.dropout, pass);
  Tensor hidden = fc1_(x, pass, spec_.activation);
  hidden = stream_.drop_within(hidden, spec_.hidden_dropout, pass, fc1_.span());
  return stream_.drop(fc2_(hidden, pass), spec_.dropout, pass);
}

// Without dropout the hidden channels are stored once instead of twice. The skipped mask still advances the mask
// numbers.
Tensor Mlp::fused(const Tensor& x, Pass& pass) const {
  pass.next_mask();
  const LinearOptions first{.activation = spec_.activation, .out_dtype = x.dtype(), .tf32 = tf32_};
  return parallel_mlp(x, stream_.rows_within(x, pass), fc1_.weight(), fc1_.bias(), fc2_.weight(), fc2_.bias(), first,
                      parallel_);
}

}  // namespace isobar
