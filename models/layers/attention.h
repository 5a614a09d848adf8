// Self-attention with several heads (Vaswani et al. 2017): every token of a sample reads all tokens of that sample.
//
//   q, k, v = x·Wᵀ + b                                   per head: o = dropout(softmax(q·kᵀ / √HS))·v
//   y = dropout(proj(o))                                 o: the heads side by side
#pragma once

#include <cstdint>
#include <string>

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

  // Lists name.{q,k,v}.{weight,bias} and name.proj.{weight,bias}. Error where NH does not divide C.
  Attention(Parameters& parameters, const std::string& name, const AttentionLayerOptions& options);

  // [B·T, C] -> [B·T, C] in x's dtype, which is the activation's; B is `batch`.
  Tensor forward(const Tensor& x, std::int64_t batch, const Context& context) const;

 private:
  AttentionLayerOptions options_;
  Linear qkv_, proj_;
};

}  // namespace isobar
