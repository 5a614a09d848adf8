// The convolution and the transposed convolution as layers (PyTorch's Conv1d, Conv2d and Conv3d, ConvTranspose1d, ...):
// y = act(x * W + b), one to three axes. Activations have their channels last.
//
// Ranks do not share them: every rank has the whole layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/conv_ops.h"
#include "models/build.h"

namespace isobar {

// Initial weights from N(0, scale²), and a constant bias.
struct ConvInit {
  double scale = 0.02, bias = 0;
};

struct ConvSpec {
  std::int64_t in = 0, out = 0;               // channels
  std::vector<std::int64_t> kernel = {3, 3};  // K: one extent for each axis
  // One entry for all axes, or one for each.
  std::vector<std::int64_t> stride = {1}, pad = {0};
  std::vector<Edge> edge = {Edge::zeros};
  Pointwise activation = Pointwise::none;
  // Null: U(±1/√n) for weights and bias, PyTorch's default; n is K times the second extent of the weight.
  std::optional<ConvInit> init = {};
  bool zero = false;  // weights and bias start at zero
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

class ConvTranspose {
 public:
  // Registers name.weight [in, out, K], which lies in memory as [in, K, out], and name.bias [out].
  ConvTranspose(const Build& build, const std::string& name, const ConvSpec& spec);

  // [B, S, in] in the activation's dtype -> [B, O, out], O = (S - 1)·stride - 2·pad + K.
  Tensor operator()(const Tensor& x) const;
  Weights weights() const { return {weight_, bias_}; }

 private:
  const Parameters& parameters_;
  ConvSpec spec_;
  bool tf32_;
  int weight_, bias_;
};

}  // namespace isobar
