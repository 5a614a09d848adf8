// GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"): tokens in, logits of the tokens
// that follow them out.
//
//   x = dropout(wte[token] + wpe[position])                       x: the residual stream [B·T, C]
//   depth times:   x += dropout(proj(attention(q, k, v of norm1(x))))
//                  x += dropout(fc2(gelu(fc1(norm2(x)))))
//   logits = norm(x) · wteᵀ                                       or · head.weightᵀ where it is not tied; no bias
//
// Attention is causal and scales by HS^-0.5. Weights begin as N(0, init_std), those of proj and fc2 as
// N(0, init_std / √(2·depth)), since 2·depth branches are added to the stream. The table of tokens may have more rows
// than there are tokens; logits of these rows stand for nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/layers/embedding.h"
#include "models/layers/transformer.h"
#include "models/network.h"

namespace isobar {

struct GptConfig {
  std::int64_t vocabulary = 0, columns = 0;          // tokens; rows of the table, at least as many
  std::int64_t positions = 0;                        // max T
  std::int64_t tokens = 0;                           // T of every sample; 0: any, as many as a sample has
  std::int64_t embed = 768, depth = 12, heads = 12;  // C, L, NH
  std::int64_t head_size = 64, hidden = 3072;        // HS; channels within the MLP
  Activation gelu = Activation::gelu_tanh;
  bool bias = true;  // of products and norms
  bool tie_head = true;
  bool pads_count = false;  // rows of the table without a token have probabilities too
  double norm_eps = 1e-5, init_std = 0.02;
  double embedding_dropout = 0, attention_dropout = 0, hidden_dropout = 0;

  double branch_init_std() const;
};

class Gpt : public Network {
 public:
  // Registers its parameters; they must be allocated before the first forward pass.
  Gpt(const GptConfig& config, const Ports& ports, const Build& build);

  std::string name() const override { return "GPT"; }
  // The embedding, each block, the last norm, the head.
  std::span<const Stage> stages() const override { return stages_; }
  const GptConfig& config() const { return config_; }
  VocabPart logit_columns() const override { return columns_; }
  TokenHead token_head() const override;
  std::vector<Part> token_parts() const override;
  bool has_residual_stream() const override { return true; }
  // Of isobar, nanoGPT and Hugging Face (models/gpt/foreign_weights.h): a file, or a folder of the last one. Rows of
  // the table of tokens that a file lacks are zero.
  std::unique_ptr<TensorReader> open_weights(const std::filesystem::path& path) const override;

 private:
  Tensor embed(const Tensor& ids, Pass& pass) const;
  Tensor logits(const Tensor& y, const Pass& pass) const;
  std::vector<Stage> cut(bool recompute) const;

  GptConfig config_;
  bool tf32_;
  VocabPart columns_;  // of the logits
  ResidualStream stream_;
  TokenEmbedding tokens_;
  PositionTable positions_;
  std::vector<TransformerBlock> blocks_;
  LayerNorm norm_;
  std::optional<Linear> head_;  // none: tied
  std::vector<Stage> stages_;
};

}  // namespace isobar
