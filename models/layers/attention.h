// Self-attention with several heads (Vaswani et al. 2017): every token of a sample reads all tokens of that sample.
//
//   q, k, v = x·Wᵀ + b                                   per head: o = dropout(softmax(q·kᵀ / √HS))·v
//   y = dropout(proj(o))                                 o: the heads side by side
//
// Tensor parallel: a rank has some of the heads, that is their rows of the weights of q, k and v and their columns of
// proj's (comm/ops.h). Context-parallel ranks hold some of the tokens each; of this layer only o needs those of others
// (comm/context_attention.h).
#pragma once

#include <cstdint>
#include <string>

#include "comm/parallel.h"
#include "models/context.h"
#include "models/layers/linear.h"

namespace isobar {

struct AttentionLayerOptions {
  std::int64_t width = 0, heads = 0;  // C and NH; HS is C/NH
  double dropout = 0;                 // of the probabilities and of y
  bool tf32 = false;
};

class Attention {
 public:
  static constexpr std::uint64_t kMasks = 2;  // of the probabilities, of y

  // Lists name.{q,k,v}.{weight,bias} and name.proj.{weight,bias}. Error where NH does not divide C, where there are
  // more tp ranks than heads, and where the context form asked for cannot deal a rank's heads.
  Attention(Parameters& parameters, const std::string& name, const AttentionLayerOptions& options,
            const Parallel& parallel = Parallel::alone());

  // [B·T, C] -> [B·T, C] in x's dtype, which is the activation's; B is `batch`. Over context-parallel ranks T counts
  // this rank's tokens, and the context says which they are. With sequence parallel: the rank's own rows of both.
  Tensor forward(const Tensor& x, std::int64_t batch, const Context& context) const;

 private:
  AttentionLayerOptions options_;
  const Parallel& parallel_;
  std::int64_t head_size_;
  Part heads_;  // of this rank
  Linear qkv_, proj_;
};

}  // namespace isobar
