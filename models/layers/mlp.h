// The multi-layer perceptron of a transformer block, on every token by itself:
//
//   y = dropout(fc2(dropout(act(fc1(x)))))
//
// Tensor parallel: a rank has some of the hidden channels, that is their rows of fc1's weight and their columns of
// fc2's (comm/ops.h). They are dealt in eights, so that rows of 16 bits begin where vector loads can.
#pragma once

#include <cstdint>
#include <string>

#include "comm/parallel.h"
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
  static constexpr std::int64_t kTogether = 8;  // hidden channels are dealt to ranks in groups of so many
  static constexpr std::uint64_t kMasks = 2;    // of the hidden channels, of y

  // Lists name.fc1.{weight,bias} and name.fc2.{weight,bias}. Error where there are more tp ranks than eights of hidden
  // channels.
  Mlp(Parameters& parameters, const std::string& name, const MlpOptions& options,
      const Parallel& parallel = Parallel::alone());

  // [B·T, C] -> [B·T, C] in x's dtype, which is the activation's; B is `batch`. With sequence parallel the rank's own
  // rows of both.
  Tensor forward(const Tensor& x, std::int64_t batch, const Context& context) const;

 private:
  MlpOptions options_;
  const Parallel& parallel_;
  Part hidden_;  // channels of this rank
  Linear fc1_, fc2_;
};

}  // namespace isobar
