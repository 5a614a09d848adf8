#include "models/vit/vit.h"

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kEps = 1e-6;

std::vector<TransformerBlock> blocks_of(const VitConfig& c, const Build& build) {
  std::vector<TransformerBlock> blocks;
  for (std::int64_t i = 0; i < c.depth; ++i)
    blocks.emplace_back(build, concat("blocks.", i),
                        TransformerSpec{.width = c.embed,
                                        .heads = c.heads,
                                        .hidden = c.hidden(),
                                        .eps = kEps,
                                        .attention_dropout = c.dropout,
                                        .hidden_dropout = c.dropout,
                                        .dropout = c.dropout,
                                        .drop_path = c.drop_path(i)});
  return blocks;
}

LinearSpec head_of(const VitConfig& c) {
  if (c.out_channels == 0) return {.in = c.tokens() * c.embed, .out = c.classes, .wide = true};
  const std::int64_t points = c.patch * c.patch;
  return {
      .in = c.embed, .out = c.out_channels * points, .bias = false, .init_std = c.zero_head ? 0 : 0.02, .wide = true};
}

Ports ports_of(const VitConfig& c) {
  const Shape fields{c.out_channels, c.height, c.width};
  return {.in = {c.in_channels, c.height, c.width}, .out = c.out_channels == 0 ? Shape{c.classes} : fields};
}

Build of_tokens(const VitConfig& c, const Build& build) {
  return build.with_tokens(c.tokens(), c.row_tokens());
}

}  // namespace

double VitConfig::drop_path(std::int64_t block) const {
  return depth < 2 ? 0 : dropout * static_cast<double>(block) / static_cast<double>(depth - 1);
}

Tensor Vit::embed(const Tensor& image, Pass& pass) const {
  return stream_.begin(positions_(patches_(image)), config_.dropout, pass);
}

Tensor Vit::head(const Tensor& y, const Pass& pass) const {
  return head_(config_.out_channels == 0 ? y.view({pass.samples(), -1}) : y, pass);
}

std::vector<Stage> Vit::cut(bool recompute) const {
  std::vector<Stage> stages;
  stages.push_back({[this](const Tensors& in, Pass pass) { return Tensors{embed(in[0], pass)}; },
                    joined({positions_.weights(), patches_.weights()})});
  for (const TransformerBlock& block : blocks_)
    stages.push_back({[&block](const Tensors& in, Pass pass) { return block(Residual::of(in), pass).list(); },
                      block.weights(), recompute});
  stages.push_back(
      {[this](const Tensors& in, Pass pass) { return Tensors{stream_.end(norm_(Residual::of(in)).y, pass)}; },
       norm_.weights()});
  stages.push_back({[this](const Tensors& in, Pass pass) { return Tensors{head(in[0], pass)}; }, head_.weights()});
  return stages;
}

// The order of the members is the order of their parameters in the flat buffers.
Vit::Vit(const VitConfig& c, const Build& build)
    : Network(ports_of(c)),
      config_(c),
      stream_(of_tokens(c, build)),
      positions_(of_tokens(c, build), "pos_embed", c.embed),
      patches_(build, "patch_embed",
               {.channels = c.in_channels, .height = c.height, .width = c.width, .patch = c.patch, .embed = c.embed}),
      blocks_(blocks_of(c, of_tokens(c, build))),
      norm_(build, "norm", c.embed, kEps),
      head_(build, {"head"}, head_of(c)),
      stages_(cut(build.compute.recompute)) {}

}  // namespace isobar
