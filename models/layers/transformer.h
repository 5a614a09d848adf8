// The transformer block (Vaswani et al. 2017) with the norm before each branch, as in ViT and GPT-2:
//
//   x += drop_path(attention(norm1(x)))                  x: the residual stream [B·T, C]
//   x += drop_path(mlp(norm2(x)))
//
// Addition and norm are one kernel, which reads and writes the stream once instead of twice. A norm follows each
// addition; the norm after the last addition of a block belongs to the next block, or to the layer after the last
// block. So blocks pass a Residual: the stream and the branch that the next norm will add to it.
#pragma once

#include <cstdint>
#include <string>

#include "models/layers/attention.h"
#include "models/layers/mlp.h"
#include "models/layers/norm.h"

namespace isobar {

struct TransformerSpec {
  std::int64_t width = 0, heads = 0;  // C, NH
  std::int64_t head_size = 0;         // HS; 0: C/NH
  std::int64_t hidden = 0;            // channels within the MLP
  bool causal = false;
  Activation activation = Activation::gelu_erf;
  double eps = 1e-6;  // of the norms
  bool bias = true;   // of products and norms
  double init_std = 0.02;
  double branch_init_std = 0.02;  // of the last product of each branch
  // Of the attention probabilities, of the hidden channels, and of both branches.
  double attention_dropout = 0, hidden_dropout = 0, dropout = 0;
  double drop_path = 0;  // of the whole branch of a sample
};

class TransformerBlock {
 public:
  // Registers name.norm1, name.attn, name.norm2 and name.mlp.
  TransformerBlock(const Build& build, const std::string& name, const TransformerSpec& spec);

  Residual operator()(const Residual& in, Pass& pass) const;
  Weights weights() const { return joined({norm1_.weights(), attention_.weights(), norm2_.weights(), mlp_.weights()}); }

 private:
  TransformerSpec spec_;
  ResidualStream stream_;
  LayerNorm norm1_;
  Attention attention_;
  LayerNorm norm2_;
  Mlp mlp_;
};

}  // namespace isobar
