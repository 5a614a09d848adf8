#include "models/network.h"

#include "engine/field_ops.h"

namespace isobar {

Tensor Network::in_patches(const Tensor& input, const Pass& pass) const {
  return run_stages(stages(), {input}, pass.over(input.size(0)))[0];
}

Tensor Network::operator()(const Tensor& input, const Pass& pass) const {
  const Tensor output = in_patches(input, pass);
  if (patch() == 0) return output;
  return unpatchify(output, {input.size(0), ports_.out[0], rows().size(), ports_.out[2]}, patch(),
                    PatchOrder::channels_last);
}

std::unique_ptr<Network> make_network(const NetworkRecipe& recipe, const Ports& ports, const Build& build) {
  std::unique_ptr<Network> network = recipe.make(ports, build);
  check_stages(network->stages(), build.parameters);
  return network;
}

}  // namespace isobar
