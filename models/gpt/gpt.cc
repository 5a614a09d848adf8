#include "models/gpt/gpt.h"

#include <cmath>
#include <utility>

#include "engine/files/huggingface_folder.h"
#include "kernels/common/check.h"
#include "models/gpt/foreign_weights.h"
#include "models/gpt/huggingface.h"

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
  return Linear(build, {"head"}, untied_head(build, {.rows = c.columns, .width = c.embed, .init_std = c.init_std}));
}

// Of rows [B·T, C] those of the last tokens, [B, C].
Tensor last_of_each(const Tensor& rows, std::int64_t samples) {
  if (rows.size(0) == samples) return rows;
  ISOBAR_CHECK(samples == 1, "a text is begun alone, not with ", samples - 1, " others");
  return rows.slice((rows.size(0) - 1) * rows.size(1), {1, rows.size(1)});
}

}  // namespace

double GptConfig::branch_init_std() const {
  return init_std / std::sqrt(2 * static_cast<double>(depth));
}

// Of a block: the norms, the stream twice, which is wider; queries, keys, values and outputs; the hidden channels.
TokenHead Gpt::token_head() const {
  return {.weight = head_ ? head_->weight() : tokens_.table(),
          .tf32 = tf32_,
          .kept_by_block = 6 * config_.embed + 4 * config_.heads * config_.head_size + config_.hidden};
}

std::vector<Part> Gpt::token_parts() const {
  return config_.tokens > 0 ? stream_.chunks() : Network::token_parts();
}

Tensor Gpt::embed(const Tensor& ids, Pass& pass) const {
  return stream_.begin(positions_(tokens_(ids), pass), config_.embedding_dropout, pass);
}

Tensor Gpt::logits(const Tensor& all, const Pass& pass) const {
  const Tensor y = pass.cache() == nullptr ? all : last_of_each(all, pass.samples());
  return head_ ? (*head_)(y, pass) : tokens_.logits(y, pass);
}

std::vector<Stage> Gpt::cut(bool recompute) const {
  std::vector<Stage> stages;
  stages.push_back({[this](const Tensors& in, Pass pass) { return Tensors{embed(in[0], pass)}; },
                    joined({tokens_.weights(), positions_.weights()})});
  for (const TransformerBlock& block : blocks_)
    stages.push_back({[&block](const Tensors& in, Pass pass) { return block(Residual::of(in), pass).list(); },
                      block.weights(), recompute});
  stages.push_back({[this](const Tensors& in, Pass) { return Tensors{norm_(Residual::of(in)).y}; }, norm_.weights()});
  stages.push_back({[this](const Tensors& in, Pass pass) { return Tensors{logits(in[0], pass)}; },
                    head_ ? head_->weights() : tokens_.weights()});
  return stages;
}

std::unique_ptr<TensorReader> Gpt::open_weights(const std::filesystem::path& path) const {
  if (is_huggingface_folder(path)) {
    check_huggingface_config(path, config_);
  } else {
    auto file = std::make_unique<SafetensorsReader>(path);
    if (!has_foreign_names(*file)) return file;
  }
  OwnedTensors weights = gpt_to_isobar(read_foreign_weights(path), config_.heads);
  if (const auto table = weights.find("wte.weight"); table != weights.end())
    ISOBAR_CHECK(table->second.info.shape.at(0) <= config_.columns, path.string(), ": the table of tokens has ",
                 table->second.info.shape[0], " rows, more than the ", config_.columns,
                 " of the network; isobar weights convert --rows cuts them");
  set_vocabulary_rows(weights, config_.columns);
  return std::make_unique<OwnedTensorReader>(path, std::move(weights));
}

// The order of the members is the order of their parameters in the flat buffers.
Gpt::Gpt(const GptConfig& c, const Ports& ports, const Build& build)
    : Network(ports),
      config_(c),
      tf32_(build.compute.may_use_tf32()),
      columns_(logit_part(build, c.columns, c.pads_count ? c.columns : c.vocabulary)),
      stream_(build.with_causal_tokens(c.tokens)),
      tokens_(build.with_causal_tokens(c.tokens), "wte",
              {.rows = c.columns, .width = c.embed, .init_std = c.init_std, .is_head = c.tie_head}),
      positions_(build.with_causal_tokens(c.tokens), "wpe",
                 {.rows = c.positions, .width = c.embed, .init_std = c.init_std}),
      blocks_(blocks_of(c, build.with_causal_tokens(c.tokens))),
      norm_(build.with_causal_tokens(c.tokens), "norm", c.embed, c.norm_eps, c.bias),
      head_(head_of(c, build.with_causal_tokens(c.tokens))),
      stages_(cut(build.compute.recompute)) {}

}  // namespace isobar
