// Self-attention with several heads (Vaswani et al. 2017): every token of a sample reads all tokens of that sample.
//
//   q, k, v = x·Wᵀ + b                                   per head: o = dropout(softmax(q·kᵀ / √HS))·v
//   y = dropout(proj(o))                                 o: the heads side by side
//
// Tensor-parallel ranks have some of the heads each. Context-parallel ranks have some of the tokens; of this layer only
// o needs those of others (comm/context_attention.h).
#pragma once

#include <cstdint>
#include <string>

#include "models/layers/linear.h"

namespace isobar {

struct AttentionSpec {
  std::int64_t width = 0, heads = 0;  // C and NH; HS is C/NH
  double dropout = 0;                 // of the probabilities and of y
};

class Attention {
 public:
  // Lists name.{q,k,v}.{weight,bias} and name.proj.{weight,bias}. Error where NH does not divide C, where there are
  // more tensor-parallel ranks than heads, and where the context form asked for cannot share a rank's heads.
  Attention(const Build& build, const std::string& name, const AttentionSpec& spec);

  // Rows of the stream, [B·T, C], to the same, in x's dtype, which is the activation's.
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
