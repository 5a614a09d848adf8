#include "models/vit/trunk.h"

#include <string>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kEps = 1e-6;
constexpr double kInitStd = 0.02;  // truncated at ±2, a hundred standard deviations away: a plain normal
// The embedding's mask has number 0. It is given as many numbers as a block, whose masks follow.
constexpr std::uint64_t kEmbeddingMask = 0, kFirstBlock = TransformerBlock::kMasks;

std::vector<TransformerBlock> add_blocks(const VitTrunkConfig& config, Parameters& parameters) {
  std::vector<TransformerBlock> blocks;
  for (std::int64_t i = 0; i < config.depth; ++i)
    blocks.emplace_back(parameters, "blocks." + std::to_string(i),
                        TransformerOptions{.width = config.embed,
                                           .heads = config.heads,
                                           .hidden = 4 * config.embed,
                                           .eps = kEps,
                                           .dropout = config.dropout,
                                           .drop_path = config.drop_path(i),
                                           .tf32 = config.tf32});
  return blocks;
}

}  // namespace

double VitTrunkConfig::drop_path(std::int64_t block) const {
  return depth < 2 ? 0 : dropout * static_cast<double>(block) / static_cast<double>(depth - 1);
}

std::vector<Stage> VitTrunk::cut() const {
  using Tensors = std::vector<Tensor>;
  const auto residual = [](const Tensors& in) { return Residual{in[0], in.size() > 1 ? in[1] : Tensor()}; };
  std::vector<Stage> stages;
  stages.push_back({[this](const Tensors& in, const Context& context) { return Tensors{embed(in[0], context)}; }});
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const auto block = [this, i, residual](const Tensors& in, const Context& context) {
      const Context masks = context.masks_from(kFirstBlock + i * TransformerBlock::kMasks);
      const Residual out = blocks_[i].forward(residual(in), in[0].size(0) / config_.tokens(), masks);
      return Tensors{out.x, out.branch};
    };
    stages.push_back({block, config_.recompute});
  }
  stages.push_back({[this, residual](const Tensors& in, const Context&) {
    const Residual last = residual(in);
    return Tensors{norm_.forward(last.x, last.branch).y};
  }});
  return stages;
}

// [B, V, LAT, LON] -> [B·T, C]
Tensor VitTrunk::embed(const Tensor& image, const Context& context) const {
  ISOBAR_CHECK(image.shape() == Shape({image.size(0), config_.in_channels, config_.height, config_.width}),
               "the model takes fields ", to_string({-1, config_.in_channels, config_.height, config_.width}), ", not ",
               to_string(image.shape()));
  const Tensor tokens = add_row(patch_embed_.forward(image), parameters_.get(pos_embed_));
  return dropout(tokens, context.rate(config_.dropout), context.mask(kEmbeddingMask),
                 context.block.elements(tokens, image.size(0), PassBlock::Rows::all));
}

// The members list their parameters in their order: it is the layout of the flat buffers.
VitTrunk::VitTrunk(const VitTrunkConfig& config, Parameters& parameters)
    : config_(config),
      parameters_(parameters),
      pos_embed_(parameters.add({.names = {"pos_embed"},
                                 .shape = {1, config.tokens(), config.embed},
                                 .init = {Init::Kind::normal, kInitStd}})),
      patch_embed_(parameters, "patch_embed",
                   {.channels = config.in_channels, .patch = config.patch, .width = config.embed, .tf32 = config.tf32}),
      blocks_(add_blocks(config, parameters)),
      norm_(parameters, "norm", config.embed, kEps),
      stages_(cut()) {}

}  // namespace isobar
