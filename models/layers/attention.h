// Multi-head self-attention (Vaswani et al. 2017): every token of a sample attends to all tokens of that sample; with
// `causal` only to those that do not come after it.
//
//   q, k, v = x·Wᵀ + b                                   per head: o = dropout(softmax(q·kᵀ / √HS))·v
//   y = dropout(proj(o))                                 o: the heads side by side, NH·HS channels
//
// Each tensor-parallel rank has some of the heads. Each context-parallel rank has some of the tokens; only the
// computation of o needs tokens of other ranks (comm/context_attention.h).
#pragma once

#include <cstdint>
#include <string>

#include "models/layers/linear.h"

namespace isobar {

struct AttentionSpec {
  std::int64_t width = 0, heads = 0;  // C and NH
  std::int64_t head_size = 0;         // HS; 0: C/NH
  bool causal = false;                // a token attends to itself and to the tokens before it
  bool bias = true;
  double init_std = 0.02, proj_init_std = 0.02;  // of q, k, v; of proj
  double attention_dropout = 0, dropout = 0;     // of the probabilities; of y
};

class Attention {
 public:
  // Registers name.{q,k,v}.{weight,bias} and name.proj.{weight,bias}; without biases the weights alone. Error if HS is
  // left to C, which NH does not divide, if there are more tensor-parallel ranks than heads, or if the requested
  // context form cannot split a rank's heads.
  Attention(const Build& build, const std::string& name, const AttentionSpec& spec);

  // Rows of the stream, [B·T, C], to rows of the same shape, in x's dtype, which is the activation's.
  Tensor operator()(const Tensor& x, Pass& pass) const;
  Weights weights() const { return joined({qkv_.weights(), proj_.weights()}); }

 private:
  Tensor heads(const Tensor& qkv, Pass& pass) const;

  const Parallel& parallel_;
  AttentionSpec spec_;
  bool tf32_;
  ResidualStream stream_;
  std::int64_t head_size_;
  Part heads_;  // of this rank
  Linear qkv_, proj_;
};

}  // namespace isobar
