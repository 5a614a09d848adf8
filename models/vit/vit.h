// The vision transformer (Dosovitskiy et al. 2020): images in, fields or classes out.
//
//   x = patches · W + b + pos_embed                               x: the residual stream [B·T, C]
//   depth times:   x += drop_path(proj(attention(q, k, v of norm1(x))))
//                  x += drop_path(fc2(gelu(fc1(norm2(x)))))
//   y = norm(x)
//   fields = unpatchify(head(y))           the channel is the head's fastest index; the head has no bias
//   logits = head(all tokens of y)
//
// Attention is not causal and scales by HS^-0.5; GELU is the exact one; norms have eps 1e-6. Parameter names and
// layouts are those of the NERSC tutorial's PyTorch model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/layers/patch_embedding.h"
#include "models/layers/position_embedding.h"
#include "models/layers/transformer.h"
#include "models/network.h"

namespace isobar {

struct VitConfig {
  std::int64_t height = 0, width = 0, patch = 8;    // LAT, LON, P
  std::int64_t in_channels = 0;                     // V
  std::int64_t embed = 384, depth = 12, heads = 8;  // C, L, NH
  // Of embeddings, attention, projections and the hidden layer; see also drop_path().
  double dropout = 0;
  std::int64_t out_channels = 0;  // of the fields; 0: none
  std::int64_t classes = 0;       // number of logits, if out_channels is 0
  bool zero_head = false;         // the head of fields starts at zero instead of N(0, 0.02)

  static constexpr std::int64_t kHiddenPerChannel = 4;
  std::int64_t hidden() const { return kHiddenPerChannel * embed; }
  std::int64_t patch_rows() const { return height / patch; }
  std::int64_t row_tokens() const { return width / patch; }            // tokens of a row of patches
  std::int64_t tokens() const { return patch_rows() * row_tokens(); }  // T
  double drop_path(std::int64_t block) const;  // rises from 0 in the first block to `dropout` in the last
};

class Vit : public Network {
 public:
  // Registers its parameters; they must be allocated before the first forward pass.
  Vit(const VitConfig& config, const Build& build);

  std::string name() const override { return "ViT"; }
  // The embedding, each block, the last norm, the head.
  std::span<const Stage> stages() const override { return stages_; }
  const VitConfig& config() const { return config_; }
  std::int64_t patch() const override { return config_.out_channels == 0 ? 0 : config_.patch; }
  Part rows() const override { return patches_.rows(); }
  std::int64_t row_multiple() const override { return config_.patch; }
  bool has_residual_stream() const override { return true; }

 private:
  Tensor embed(const Tensor& image, Pass& pass) const;
  Tensor head(const Tensor& y, const Pass& pass) const;
  std::vector<Stage> cut(bool recompute) const;

  VitConfig config_;
  ResidualStream stream_;
  PositionEmbedding positions_;
  PatchEmbedding patches_;
  std::vector<TransformerBlock> blocks_;
  LayerNorm norm_;
  Linear head_;
  std::vector<Stage> stages_;
};

}  // namespace isobar
