#include "models/cnn/recipe.h"

#include <algorithm>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::int64_t kShrunkDepth = 3;  // one hidden layer

void check_ports(const Ports& ports, const CnnOptions& options) {
  const std::size_t axes = ports.in.size() - 1;
  const bool are_alike = std::equal(ports.in.begin() + 1, ports.in.end(), ports.out.begin() + 1, ports.out.end());
  ISOBAR_CHECK(are_alike, "config key model: a CNN computes fields on the grid of its input, and cannot make ",
               to_string(ports.out), " of ", to_string(ports.in));
  ISOBAR_CHECK(axes >= 1 && axes <= 3, "config key model: a CNN has one to three axes, and the samples ",
               to_string(ports.in), " have ", axes);
  ISOBAR_CHECK(!options.edge || options.edge->size() == 1 || options.edge->size() == axes,
               "config key edge: there are ", options.edge ? options.edge->size() : 0, " words for the ", axes,
               " axes of ", to_string(ports.in));
}

}  // namespace

std::shared_ptr<NetworkRecipe> make_cnn_recipe() {
  return std::make_shared<CnnRecipe>();
}

void CnnRecipe::check(const Ports& ports, const std::string&) const {
  check_ports(ports, cnn);
}

void CnnRecipe::shrink() {
  cnn.depth = std::min(cnn.depth, kShrunkDepth);
}

std::unique_ptr<Network> CnnRecipe::make(const Ports& ports, const Build& build) const {
  ISOBAR_CHECK(build.parallel.model.size() == 1,
               "tensor and context parallel: ranks cannot share a CNN; use data parallel alone");
  check_ports(ports, cnn);
  return std::make_unique<Cnn>(ports, cnn.config(), build);
}

}  // namespace isobar
