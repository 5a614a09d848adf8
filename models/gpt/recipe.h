// GPT as a value of the key `model`.
#pragma once

#include <memory>
#include <string>

#include "models/gpt/options.h"
#include "models/network.h"

namespace isobar {

// From tokens to logits of the tokens that follow them.
class GptRecipe : public NetworkRecipe {
 public:
  explicit GptRecipe(const GptOptions& options = {}) : gpt(options) {}

  GptOptions gpt;

  KeyTable keys() override { return gpt.keys(); }
  bool needs_data() const override { return !gpt.positions; }
  void fill(const Ports& ports, KeyFiller& filler) override;
  void check(const Ports& ports, const std::string& sizes) const override;
  void shrink(std::int64_t blocks) override;
  std::unique_ptr<Network> make(const Ports& ports, const Build& build) const override;
};

std::shared_ptr<NetworkRecipe> make_gpt_recipe();

}  // namespace isobar
