// The vision transformer of the NERSC tutorial: fields in, fields out.
//
//   x = patches · W + b + pos_embed                               x: the residual stream [B·T, C]
//   depth times:   x += drop_path(proj(attention(q, k, v of norm1(x))))
//                  x += drop_path(fc2(gelu(fc1(norm2(x)))))
//   fields = unpatchify(head(norm(x)))                            the channel is the head's fastest index
//
// Attention is not causal and scales by HS^-0.5; GELU is the exact one; norms have eps 1e-6; the head has no bias.
// Parameter names and layouts are those of the PyTorch model's state_dict.
#pragma once

#include <cstdint>
#include <vector>

#include "models/layers/patch_embedding.h"
#include "models/layers/transformer.h"
#include "models/stage.h"

namespace isobar {

struct VitConfig {
  std::int64_t height = 0, width = 0, patch = 8;    // LAT, LON, P
  std::int64_t in_channels = 0, out_channels = 0;   // V of the input and of the output
  std::int64_t embed = 384, depth = 12, heads = 8;  // C, L, NH
  double dropout = 0;      // of embeddings, attention, projections and the hidden layer; see also drop_path()
  bool zero_head = false;  // the head starts at zero instead of N(0, 0.02)
  bool recompute = false;  // keep only the blocks' inputs, compute the rest again in the backward pass
  bool tf32 = false;

  std::int64_t tokens() const { return (height / patch) * (width / patch); }  // T
  double drop_path(std::int64_t block) const;  // rises from 0 in the first block to `dropout` in the last
};

class Vit {
 public:
  // Lists its parameters; they must be allocated before forward().
  Vit(const VitConfig& config, Parameters& parameters);
  Vit(const Vit&) = delete;  // its stages refer to it
  Vit& operator=(const Vit&) = delete;

  // [B, in_channels, LAT, LON] in the parameters' dtype -> [B, out_channels, LAT, LON] in the same. Error where an
  // image has another shape.
  Tensor forward(const Tensor& image, const Context& context) const;

  // The same cut into the embedding, one stage a block, and the head.
  std::span<const Stage> stages() const { return stages_; }
  const VitConfig& config() const { return config_; }

 private:
  Tensor embed(const Tensor& image, const Context& context) const;
  Tensor head(const Residual& residual) const;
  std::vector<Stage> cut() const;
  std::int64_t batch_of(const Tensor& tokens) const { return tokens.size(0) / config_.tokens(); }

  VitConfig config_;
  const Parameters& parameters_;
  int pos_embed_;  // [1, T, C]
  PatchEmbedding patch_embed_;
  std::vector<TransformerBlock> blocks_;
  LayerNorm norm_;
  Linear head_;
  std::vector<Stage> stages_;
};

}  // namespace isobar
