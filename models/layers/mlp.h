// The multi-layer perceptron of a transformer block, on every token by itself:
//
//   y = dropout(fc2(dropout(act(fc1(x)))))
#pragma once

#include <cstdint>
#include <string>

#include "models/context.h"
#include "models/layers/linear.h"

namespace isobar {

struct MlpOptions {
  std::int64_t width = 0, hidden = 0;  // C, and the channels between fc1 and fc2
  Activation activation = Activation::gelu_erf;
  double dropout = 0;  // of the hidden channels and of y
  bool tf32 = false;
};

class Mlp {
 public:
  static constexpr std::uint64_t kMasks = 2;  // of the hidden channels, of y

  // Lists name.fc1.{weight,bias} and name.fc2.{weight,bias}.
  Mlp(Parameters& parameters, const std::string& name, const MlpOptions& options);

  // [B·T, C] -> [B·T, C] in x's dtype, which is the activation's; B is `batch`.
  Tensor forward(const Tensor& x, std::int64_t batch, const Context& context) const;

 private:
  MlpOptions options_;
  Linear fc1_, fc2_;
};

}  // namespace isobar
