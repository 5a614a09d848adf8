// The convolutional network as a value of the key `model`.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "models/cnn/options.h"
#include "models/network.h"

namespace isobar {

// From fields to fields on the same grid of one to three axes.
class CnnRecipe : public NetworkRecipe {
 public:
  explicit CnnRecipe(const CnnOptions& options = {}) : cnn(options) {}

  CnnOptions cnn;

  KeyTable keys() override { return cnn.keys(); }
  void check(const Ports& ports, const std::string& sizes) const override;
  std::optional<Reach> reach() const override;
  void shrink(std::int64_t blocks) override;
  std::unique_ptr<Network> make(const Ports& ports, const Build& build) const override;
};

std::shared_ptr<NetworkRecipe> make_cnn_recipe();

}  // namespace isobar
