#include "models/gpt/recipe.h"

#include <algorithm>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::int64_t kShrunkGptDepth = 2;

void check_tokens(const Ports& ports) {
  ISOBAR_CHECK(ports.are_tokens(), "config key model: GPT takes tokens of text, and the samples are fields ",
               to_string(ports.in));
}

}  // namespace

std::shared_ptr<NetworkRecipe> make_gpt_recipe() {
  return std::make_shared<GptRecipe>();
}

void GptRecipe::fill(const Ports& ports, KeyFiller& filler) {
  check_tokens(ports);
  filler.fill("positions", gpt.positions, ports.in[0]);
}

void GptRecipe::check(const Ports& ports, const std::string& sizes) const {
  check_tokens(ports);
  ISOBAR_CHECK(ports.in[0] <= *gpt.positions, sizes, " must be at most positions (", *gpt.positions, "), not ",
               ports.in[0]);
}

void GptRecipe::shrink(std::int64_t blocks) {
  gpt.depth = std::min(gpt.depth, std::max(kShrunkGptDepth, blocks));
}

std::unique_ptr<Network> GptRecipe::make(const Ports& ports, const Build& build) const {
  check_tokens(ports);
  GptConfig config = gpt.config(ports);
  // Ranks that share the rows of the stream must know how many a sample has; else samples may be of any length.
  if (build.parallel.sequence || build.parallel.cp.size() > 1) config.tokens = ports.in[0];
  return std::make_unique<Gpt>(config, ports, build);
}

}  // namespace isobar
