#include "models/cnn/recipe.h"

#include <algorithm>

namespace isobar {
namespace {

constexpr std::int64_t kShrunkDepth = 3;  // one hidden layer

}  // namespace

std::shared_ptr<NetworkRecipe> make_cnn_recipe() {
  return std::make_shared<CnnRecipe>();
}

void CnnRecipe::check(const Ports& ports, const std::string&) const {
  check_field_ports("a CNN", ports, cnn.edge);
}

std::optional<Reach> CnnRecipe::reach() const {
  return Reach{.points = cnn.depth, .wraps = wraps_of(cnn.edge)};  // every convolution is 3 wide
}

void CnnRecipe::shrink(std::int64_t blocks) {
  cnn.depth = std::min(cnn.depth, std::max(kShrunkDepth, blocks));
}

std::unique_ptr<Network> CnnRecipe::make(const Ports& ports, const Build& build) const {
  check_not_shared("a CNN", build);
  check_field_ports("a CNN", ports, cnn.edge);
  return std::make_unique<Cnn>(ports, cnn.config(), build);
}

}  // namespace isobar
