// What every vision transformer begins with (Dosovitskiy et al. 2020): images in, one vector a patch out. A head
// follows.
//
//   x = patches · W + b + pos_embed                               x: the residual stream [B·T, C]
//   depth times:   x += drop_path(proj(attention(q, k, v of norm1(x))))
//                  x += drop_path(fc2(gelu(fc1(norm2(x)))))
//   y = norm(x)
//
// Attention is not causal and scales by HS^-0.5; GELU is the exact one; norms have eps 1e-6. Parameter names and
// layouts are those of the tutorial's PyTorch model.
#pragma once

#include <cstdint>
#include <vector>

#include "models/layers/patch_embedding.h"
#include "models/layers/transformer.h"
#include "models/stage.h"

namespace isobar {

struct VitTrunkConfig {
  std::int64_t height = 0, width = 0, patch = 8;    // LAT, LON, P
  std::int64_t in_channels = 0;                     // V
  std::int64_t embed = 384, depth = 12, heads = 8;  // C, L, NH
  double dropout = 0;      // of embeddings, attention, projections and the hidden layer; see also drop_path()
  bool recompute = false;  // keep only the blocks' inputs, compute the rest again in the backward pass
  bool tf32 = false;

  std::int64_t tokens() const { return (height / patch) * (width / patch); }  // T
  double drop_path(std::int64_t block) const;  // rises from 0 in the first block to `dropout` in the last
};

class VitTrunk {
 public:
  // Lists its parameters; they must be allocated before a stage runs. A head lists its own after them.
  VitTrunk(const VitTrunkConfig& config, Parameters& parameters);
  VitTrunk(const VitTrunk&) = delete;  // its stages refer to it
  VitTrunk& operator=(const VitTrunk&) = delete;

  // [B, V, LAT, LON] in the parameters' dtype -> [B·T, C] in the activation's, in three kinds of stages: the embedding,
  // one a block, the last norm. Error where an image has another shape.
  const std::vector<Stage>& stages() const { return stages_; }
  const VitTrunkConfig& config() const { return config_; }

 private:
  Tensor embed(const Tensor& image, const Context& context) const;
  std::vector<Stage> cut() const;

  VitTrunkConfig config_;
  const Parameters& parameters_;
  int pos_embed_;  // [1, T, C]
  PatchEmbedding patch_embed_;
  std::vector<TransformerBlock> blocks_;
  LayerNorm norm_;
  std::vector<Stage> stages_;
};

}  // namespace isobar
