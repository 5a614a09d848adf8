// The convolution as a layer (PyTorch's Conv1d, Conv2d and Conv3d): y = act(x * W + b), one to three axes. Activations
// have their channels last.
//
// Ranks do not share it: every rank has the whole layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/conv_ops.h"
#include "models/build.h"

namespace isobar {

struct ConvSpec {
  std::int64_t in = 0, out = 0;               // channels
  std::vector<std::int64_t> kernel = {3, 3};  // K: one extent for each axis
  // One entry for all axes, or one for each.
  std::vector<std::int64_t> stride = {1}, pad = {0};
  std::vector<Edge> edge = {Edge::zeros};
  Pointwise activation = Pointwise::none;
  bool zero = false;  // weights and bias start at zero instead of U(±1/√(in·K)), PyTorch's default
  bool wide = false;  // y has the parameters' dtype instead of x's: for a loss
};

class Conv {
 public:
  // Registers name.weight [out, in, K], which lies in memory as [out, K, in], and name.bias [out].
  Conv(const Build& build, const std::string& name, const ConvSpec& spec);

  // [B, S, in] in the activation's dtype -> [B, O, out].
  Tensor operator()(const Tensor& x) const;
  Weights weights() const { return {weight_, bias_}; }

 private:
  const Parameters& parameters_;
  ConvSpec spec_;
  bool tf32_;
  int weight_, bias_;
};

}  // namespace isobar
