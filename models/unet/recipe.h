// The U-Net as a value of the key `model`.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "models/network.h"
#include "models/unet/options.h"

namespace isobar {

// From fields to fields on the same grid of one to three axes, which are multiples of 2^levels.
class UnetRecipe : public NetworkRecipe {
 public:
  explicit UnetRecipe(const UnetOptions& options = {}) : unet(options) {}

  UnetOptions unet;

  KeyTable keys() override { return unet.keys(); }
  void check(const Ports& ports, const std::string& sizes) const override;
  std::optional<Reach> reach() const override;
  void shrink(std::int64_t blocks) override;
  std::unique_ptr<Network> make(const Ports& ports, const Build& build) const override;
};

std::shared_ptr<NetworkRecipe> make_unet_recipe();

}  // namespace isobar
