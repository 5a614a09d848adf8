// Layer norm (Ba et al. 2016) of every token, after a branch is added to the residual stream.
#pragma once

#include <cstdint>
#include <string>

#include "models/build.h"
#include "models/layers/residual_stream.h"

namespace isobar {

class LayerNorm {
 public:
  // Registers name.weight (ones) and name.bias (zeros), [width]; bias false: the weight alone.
  LayerNorm(const Build& build, const std::string& name, std::int64_t width, double eps, bool bias = true);

  // s = x + branch, y = norm(s): [B·T, C] each, s in x's dtype, y in the activation's. Without a branch s is x itself.
  LayernormResult operator()(const Residual& in) const;
  Weights weights() const { return bias_ < 0 ? Weights{weight_} : Weights{weight_, bias_}; }

 private:
  const Parameters& parameters_;
  int weight_, bias_ = -1;
  double eps_;
};

}  // namespace isobar
