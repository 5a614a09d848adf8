// Multi-head self-attention (Vaswani et al. 2017): every token of a sample attends to all tokens of that sample.
//
//   q, k, v = x·Wᵀ + b                                   per head: o = dropout(softmax(q·kᵀ / √HS))·v
//   y = dropout(proj(o))                                 o: the heads side by side
//
// Each tensor-parallel rank has some of the heads. Each context-parallel rank has some of the tokens; only the
// computation of o needs tokens of other ranks (comm/context_attention.h).
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
  // Registers name.{q,k,v}.{weight,bias} and name.proj.{weight,bias}. Error if NH does not divide C, if there are more
  // tensor-parallel ranks than heads, or if the requested context form cannot split a rank's heads.
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
