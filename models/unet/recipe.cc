#include "models/unet/recipe.h"

#include <algorithm>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::int64_t kShrunkLevels = 3, kShrunkWidth = 8;

void check_ports(const Ports& ports, const UnetOptions& options, const std::string& sizes) {
  check_field_ports("a U-Net", ports, options.edge);
  const std::int64_t levels = options.config().levels, multiple = std::int64_t{1} << levels;
  for (std::size_t axis = 1; axis < ports.in.size(); ++axis)
    ISOBAR_CHECK(ports.in[axis] % multiple == 0, sizes, ": a U-Net of ", levels, " levels takes multiples of ",
                 multiple, " points, not ", ports.in[axis], "; set full_scale or levels to have fewer levels");
}

}  // namespace

std::shared_ptr<NetworkRecipe> make_unet_recipe() {
  return std::make_shared<UnetRecipe>();
}

void UnetRecipe::check(const Ports& ports, const std::string& sizes) const {
  check_ports(ports, unet, sizes);
}

// A point of level i depends on points of the input from 2^i - 1 before the 2^i that it stands for to 2^i - 1 behind
// them; on the way up, a point of the input depends on points of level i that stand for others up to 2·(2^i - 1) away.
std::optional<Reach> UnetRecipe::reach() const {
  const std::int64_t stride = std::int64_t{1} << unet.config().levels;
  return Reach{.points = 3 * (stride - 1), .stride = stride, .wraps = wraps_of(unet.edge)};
}

void UnetRecipe::shrink(std::int64_t) {
  unet.levels = std::min(unet.config().levels, kShrunkLevels);
  unet.width = std::min(unet.width, kShrunkWidth);
}

std::unique_ptr<Network> UnetRecipe::make(const Ports& ports, const Build& build) const {
  check_not_shared("a U-Net", build);
  check_ports(ports, unet, "config key model");
  return std::make_unique<Unet>(ports, unet.config(), build);
}

}  // namespace isobar
