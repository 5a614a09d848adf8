// The vision transformer as a value of the key `model`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/network.h"
#include "models/vit/options.h"

namespace isobar {

// From fields or images to fields or classes. Sides must be multiples of the patch size.
class VitRecipe : public NetworkRecipe {
 public:
  explicit VitRecipe(const VitOptions& options = {}) : vit(options) {}

  VitOptions vit;

  KeyTable keys() override { return vit.keys(); }
  bool needs_data() const override { return !vit.patch_size; }
  void fill(const Ports& ports, KeyFiller& filler) override;
  void check(const Ports& ports, const std::string& sizes) const override;
  std::int64_t multiple() const override { return vit.patch_size.value_or(1); }
  TensorStart start_of(const std::string& name, const Shape& shape, const SafetensorsReader& file,
                       const FieldsMeaning& theirs, const FieldsMeaning& ours) const override;
  void shrink(std::int64_t blocks) override;
  std::unique_ptr<Network> make(const Ports& ports, const Build& build) const override;
};

std::shared_ptr<NetworkRecipe> make_vit_recipe();

}  // namespace isobar
