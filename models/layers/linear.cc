#include "models/layers/linear.h"

#include <utility>

#include "comm/ops.h"

namespace isobar {
namespace {

std::vector<std::string> with_suffix(std::vector<std::string> names, const char* suffix) {
  for (std::string& name : names) name += suffix;
  return names;
}

std::int64_t shared_extent(const LinearSpec& spec) {
  return spec.split == Split::inputs ? spec.in : spec.out;
}

Part part_of_rank(const LinearSpec& spec, const Parallel& parallel) {
  const std::int64_t total = shared_extent(spec);
  return spec.split == Split::none ? Part{0, total} : parallel.over_tp(total, spec.multiple);
}

}  // namespace

Linear::Linear(const Build& build, const std::vector<std::string>& names, const LinearSpec& spec)
    : parameters_(build.parameters),
      parallel_(build.parallel),
      spec_(spec),
      stream_(build),
      part_(part_of_rank(spec, build.parallel)),
      total_(shared_extent(spec)),
      tf32_(build.compute.may_use_tf32()) {
  ParameterSpec weight{.names = with_suffix(names, ".weight"),
                       .shape = {spec.out, spec.in},
                       .init = {Init::Kind::normal, spec.init_std},
                       .decay = true,
                       .compute_copy = true};
  ParameterSpec bias{.names = with_suffix(names, ".bias"), .shape = {spec.out}, .init = {}};
  if (part_ != Part{0, total_}) {
    weight.sharing = Sharing::shard;
    weight.shard = {.axis = spec.split == Split::outputs ? 0 : 1, .begin = part_.begin, .end = part_.end};
  }
  if (spec.split == Split::outputs) {
    bias.sharing = weight.sharing;
    bias.shard = weight.shard;
    // Every rank adds it to its own rows of the stream.
  } else if (spec.split == Split::inputs) {
    bias.sharing = build.parallel.sharing_between_branches();
  }
  weight_ = build.parameters.add(std::move(weight));
  if (spec.bias) bias_ = build.parameters.add(std::move(bias));
}

Tensor Linear::operator()(const Tensor& x, const Pass& pass, Activation activation) const {
  const LinearOptions options{
      .activation = activation, .out_dtype = spec_.wide ? parameters_.dtype() : x.dtype(), .tf32 = tf32_};
  switch (spec_.split) {
    case Split::outputs:
      return column_linear(x, stream_.rows_within(x, pass), weight(), bias(), options, parallel_);
    case Split::inputs:
      return row_linear(x, weight(), bias(), options, parallel_);
    default:
      return linear(x, weight(), bias(), options);
  }
}

}  // namespace isobar
