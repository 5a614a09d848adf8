// What every vision transformer begins with (Dosovitskiy et al. 2020): images in, one vector a patch out. A head
// follows.
//
//   x = patches · W + b + pos_embed                               x: the residual stream [B·T, C]
//   depth times:   x += drop_path(proj(attention(q, k, v of norm1(x))))
//                  x += drop_path(fc2(gelu(fc1(norm2(x)))))
//   y = norm(x)
//
// Context-parallel ranks hold a band of whole rows of patches each: a smaller picture. Its tokens take their own rows
// of pos_embed, and only attention knows of the others.
//
// Attention is not causal and scales by HS^-0.5; GELU is the exact one; norms have eps 1e-6. Parameter names and
// layouts are those of the tutorial's PyTorch model.
//
// Tensor parallel splits the branches of the blocks, and nothing else. With sequence parallel a rank has its own rows
// between the embedding and the head: it takes them behind the position embedding, and gathers all behind the norm.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/parallel.h"
#include "models/holding.h"
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

  std::int64_t patch_rows() const { return height / patch; }
  std::int64_t row_tokens() const { return width / patch; }            // of a row of patches
  std::int64_t tokens() const { return patch_rows() * row_tokens(); }  // T
  double drop_path(std::int64_t block) const;  // rises from 0 in the first block to `dropout` in the last
};

// What the rank of these groups holds of heads, hidden units and rows of patches.
std::vector<Holding::Dealt> dealt_of(const VitTrunkConfig& config, const Parallel& parallel);

class VitTrunk {
 public:
  // Lists its parameters; they must be allocated before a stage runs. A head lists its own after them.
  // `parameters` and `parallel` must outlive it. Error where there are more context-parallel ranks than rows of
  // patches.
  VitTrunk(const VitTrunkConfig& config, Parameters& parameters, const Parallel& parallel = Parallel::alone());
  VitTrunk(const VitTrunk&) = delete;  // its stages refer to it
  VitTrunk& operator=(const VitTrunk&) = delete;

  // [B, V, LAT, LON] in the parameters' dtype -> [B·T, C] in the activation's, in three kinds of stages: the embedding,
  // one a block, the last norm. LAT and T are those of this rank's band: own_height(), own_tokens(). Error where an
  // image has another shape. With sequence parallel the context's block says how many samples the rank has
  // (PassBlock::batch_size).
  const std::vector<Stage>& stages() const { return stages_; }
  const VitTrunkConfig& config() const { return config_; }
  Part own_band() const;  // of the image
  std::int64_t own_height() const { return own_band().size(); }
  std::int64_t own_tokens() const { return own_height() / config_.patch * config_.row_tokens(); }

 private:
  Tensor embed(const Tensor& image, const Context& context) const;
  std::vector<Stage> cut() const;
  std::int64_t batch_of(const Tensor& x, const Context& context) const;
  Context on_own_rows(Context context, std::int64_t batch) const;

  VitTrunkConfig config_;
  const Parameters& parameters_;
  const Parallel& parallel_;
  int pos_embed_;  // [1, T, C]
  PatchEmbedding patch_embed_;
  std::vector<TransformerBlock> blocks_;
  LayerNorm norm_;
  std::vector<Stage> stages_;
};

}  // namespace isobar
