#include "models/gpt/gpt.h"

#include <cmath>

#include "kernels/common/check.h"

namespace isobar {
namespace {

TransformerSpec block_of(const GptConfig& c) {
  return {.width = c.embed,
          .heads = c.heads,
          .head_size = c.head_size,
          .hidden = c.hidden,
          .causal = true,
          .activation = c.gelu,
          .eps = c.norm_eps,
          .bias = c.bias,
          .init_std = c.init_std,
          .branch_init_std = c.branch_init_std(),
          .attention_dropout = c.attention_dropout,
          .dropout = c.hidden_dropout};
}

std::vector<TransformerBlock> blocks_of(const GptConfig& c, const Build& build) {
  std::vector<TransformerBlock> blocks;
  for (std::int64_t i = 0; i < c.depth; ++i) blocks.emplace_back(build, concat("blocks.", i), block_of(c));
  return blocks;
}

std::optional<Linear> head_of(const GptConfig& c, const Build& build) {
  if (c.tie_head) return {};
  return Linear(build, {"head"}, {.in = c.embed, .out = c.columns, .bias = false, .init_std = c.init_std});
}

}  // namespace

double GptConfig::branch_init_std() const {
  return init_std / std::sqrt(2 * static_cast<double>(depth));
}

Tensor Gpt::embed(const Tensor& ids, Pass& pass) const {
  return stream_.begin(positions_(tokens_(ids), pass), config_.embedding_dropout, pass);
}

Tensor Gpt::head(const Tensor& y, const Pass& pass) const {
  return head_ ? (*head_)(y, pass) : tokens_.logits(y);
}

std::vector<Stage> Gpt::cut(bool recompute) const {
  std::vector<Stage> stages;
  stages.push_back({[this](const Tensors& in, Pass pass) { return Tensors{embed(in[0], pass)}; },
                    joined({tokens_.weights(), positions_.weights()})});
  for (const TransformerBlock& block : blocks_)
    stages.push_back({[&block](const Tensors& in, Pass pass) { return block(Residual::of(in), pass).list(); },
                      block.weights(), recompute});
  stages.push_back(
      {[this](const Tensors& in, Pass pass) { return Tensors{stream_.end(norm_(Residual::of(in)).y, pass)}; },
       norm_.weights()});
  stages.push_back({[this](const Tensors& in, Pass pass) { return Tensors{head(in[0], pass)}; },
                    head_ ? head_->weights() : tokens_.weights()});
  return stages;
}

// The order of the members is the order of their parameters in the flat buffers.
Gpt::Gpt(const GptConfig& c, const Ports& ports, const Build& build)
    : Network(ports),
      config_(c),
      stream_(build.with_tokens(c.tokens)),
      tokens_(build, "wte", {.rows = c.columns, .width = c.embed, .init_std = c.init_std, .is_head = c.tie_head}),
      positions_(build, "wpe", {.rows = c.positions, .width = c.embed, .init_std = c.init_std}),
      blocks_(blocks_of(c, build.with_tokens(c.tokens))),
      norm_(build.with_tokens(c.tokens), "norm", c.embed, c.norm_eps, c.bias),
      head_(head_of(c, build)),
      stages_(cut(build.compute.recompute)) {}

}  // namespace isobar
