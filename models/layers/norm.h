// Layer norm (Ba et al. 2016) of every token, after a branch is added to the residual stream.
#pragma once

#include <cstdint>
#include <string>

#include "models/build.h"
#include "models/layers/residual_stream.h"

namespace isobar {

class LayerNorm {
 public:
  // Registers name.weight (ones) and name.bias (zeros), [width].
  LayerNorm(const Build& build, const std::string& name, std::int64_t width, double eps);

  // s = x + branch, y = norm(s): [B·T, C] each, s in x's dtype, y in the activation's. Without a branch s is x itself.
  LayernormResult operator()(const Residual& in) const;
  Weights weights() const { return {weight_, bias_}; }

 private:
  const Parameters& parameters_;
  int weight_, bias_;
  double eps_;
};

}  // namespace isobar
