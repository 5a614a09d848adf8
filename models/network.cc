#include "models/network.h"

#include "engine/conv_ops.h"
#include "engine/field_ops.h"
#include "kernels/common/check.h"

namespace isobar {

Tensor Network::run(const Tensor& input, const Pass& pass) const {
  return run_stages(stages(), {input}, pass.over(input.size(0)))[0];
}

Tensor Network::in_patches(const Tensor& input, const Pass& pass) const {
  if (!has_channels_last()) return run(input, pass);
  return to_channels_first(run(to_channels_last(input, input.dtype()), pass));
}

Tensor Network::in_channels_last(const Tensor& input, const Pass& pass) const {
  if (has_channels_last()) return run(input, pass);
  const Tensor output = (*this)(to_channels_first(input), pass);
  return to_channels_last(output, output.dtype());
}

Tensor Network::operator()(const Tensor& input, const Pass& pass) const {
  const Tensor output = in_patches(input, pass);
  if (patch() == 0) return output;
  return unpatchify(output, {input.size(0), ports_.out[0], rows().size(), ports_.out[2]}, patch(),
                    PatchOrder::channels_last);
}

TokenHead Network::token_head() const {
  throw_error("a ", name(), " gives no logits of tokens");
}

std::unique_ptr<TensorReader> Network::open_weights(const std::filesystem::path& path) const {
  return std::make_unique<SafetensorsReader>(path);
}

std::int64_t NetworkRecipe::multiple() const {
  const std::optional<Reach> own = reach();
  return own ? own->stride : 1;
}

TensorStart NetworkRecipe::start_of(const std::string& name, const Shape& shape, const SafetensorsReader& file,
                                    const FieldsMeaning&, const FieldsMeaning&) const {
  return start_by_shape(shape, file.find(name));
}

void refuse_tokens(const char* network, const Ports& ports) {
  ISOBAR_CHECK(!ports.are_tokens(), "config key model: ", network, " takes fields, and the samples are tokens of text");
}

std::unique_ptr<Network> make_network(const NetworkRecipe& recipe, const Ports& ports, const Build& build) {
  std::unique_ptr<Network> network = recipe.make(ports, build);
  check_stages(network->stages(), build.parameters);
  const bool splits_rows = build.parallel.sequence && build.parallel.tp.size() > 1;
  ISOBAR_CHECK(!splits_rows || network->has_residual_stream(), "--sequence-parallel: ", network->name(),
               " has no residual stream, whose rows it splits");
  if (build.parallel.pp.size() > 1) {
    auto share = std::make_unique<PipelineShare>(recipe, ports, build);
    build.parameters.hold_only(share->held(network->stages()), share->tied(network->stages()));
    network->take(std::move(share));
  }
  return network;
}

}  // namespace isobar
