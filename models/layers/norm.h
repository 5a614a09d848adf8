// Layer norm (Ba et al. 2016): every token is shifted and scaled to mean 0 and variance 1, then by weight and bias.
#pragma once

#include <cstdint>
#include <string>

#include "engine/ops.h"
#include "engine/parameters.h"

namespace isobar {

class LayerNorm {
 public:
  // Lists name.weight [C], which starts at 1, and name.bias [C], which starts at 0; C is `width`. Every rank has both.
  LayerNorm(Parameters& parameters, const std::string& name, std::int64_t width, double eps,
            Sharing sharing = Sharing::copy);

  // s = x + branch, y = norm(s): [B·T, C] each, s in x's dtype, y in the activation's. `branch` is in the activation's
  // dtype too; where it is undefined, s is x itself.
  LayernormResult forward(const Tensor& x, const Tensor& branch) const;

 private:
  const Parameters& parameters_;
  int weight_, bias_;
  double eps_;
};

}  // namespace isobar
