// The multi-layer perceptron of a transformer block, applied to every token separately:
//
//   y = dropout(fc2(dropout(act(fc1(x)))))
//
// Each tensor-parallel rank gets a multiple of 8 hidden channels: 16-byte alignment of 16-bit rows.
#pragma once

#include <cstdint>
#include <string>

#include "models/layers/linear.h"

namespace isobar {

struct MlpSpec {
  std::int64_t width = 0, hidden = 0;  // C, and the number of channels between fc1 and fc2
  Activation activation = Activation::gelu_erf;
  bool bias = true;
  double init_std = 0.02, fc2_init_std = 0.02;
  double hidden_dropout = 0, dropout = 0;  // of the hidden channels; of y
};

class Mlp {
 public:
  static constexpr std::int64_t kChannelMultiple = 8;  // hidden channels are split in multiples of it

  // Registers name.fc1.{weight,bias} and name.fc2.{weight,bias}; without biases the weights alone. Error if there are
  // more tensor-parallel ranks than groups of hidden channels.
  Mlp(const Build& build, const std::string& name, const MlpSpec& spec);

  // Rows of the stream, [B·T, C], to rows of the same shape, in x's dtype, which is the activation's.
  Tensor operator()(const Tensor& x, Pass& pass) const;
  Weights weights() const { return joined({fc1_.weights(), fc2_.weights()}); }

 private:
  Tensor fused(const Tensor& x, Pass& pass) const;

  const Parallel& parallel_;
  MlpSpec spec_;
  bool tf32_;
  ResidualStream stream_;
  Linear fc1_, fc2_;
};

}  // namespace isobar
