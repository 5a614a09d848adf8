// The multi-layer perceptron of a transformer block, on every token by itself:
//
//   y = dropout(fc2(dropout(act(fc1(x)))))
//
// Tensor-parallel ranks have some of the hidden channels each, in groups of eight: rows of 16 bits begin where vector
// loads can.
#pragma once

#include <cstdint>
#include <string>

#include "models/layers/linear.h"

namespace isobar {

struct MlpSpec {
  std::int64_t width = 0, hidden = 0;  // C, and the channels between fc1 and fc2
  Activation activation = Activation::gelu_erf;
  double dropout = 0;  // of the hidden channels and of y
};

class Mlp {
 public:
  static constexpr std::int64_t kTogether = 8;  // hidden channels that always lie on one rank

  // Lists name.fc1.{weight,bias} and name.fc2.{weight,bias}. Error where there are more tensor-parallel ranks than
  // groups of hidden channels.
  Mlp(const Build& build, const std::string& name, const MlpSpec& spec);

  // Rows of the stream, [B·T, C], to the same, in x's dtype, which is the activation's.
  Tensor operator()(const Tensor& x, Pass& pass) const;
  Weights weights() const { return joined({fc1_.weights(), fc2_.weights()}); }

 private:
  Tensor in_one_op(const Tensor& x, Pass& pass) const;

  const Parallel& parallel_;
  MlpSpec spec_;
  bool tf32_;
  ResidualStream stream_;
  Linear fc1_, fc2_;
};

}  // namespace isobar
