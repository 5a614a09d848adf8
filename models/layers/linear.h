// The linear layer y = x·Wᵀ + b. Several layers that read the same x can be stacked into one matrix product: queries,
// keys and values are one layer here, and three in a file of weights. Ranks may hold parts of it, which comm/ops.h
// multiplies with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "engine/ops.h"
#include "engine/parameters.h"

namespace isobar {

// What a rank holds of each of the stacked layers: some of the outputs (rows of the weight, and elements of the bias)
// or of the inputs (columns of the weight).
struct LinearPart {
  enum class Of { outputs, inputs } of;
  Part part;
};

struct LinearLayerOptions {
  std::int64_t in = 0, out = 0;  // `out` of each of the stacked layers
  bool bias = true;
  double init_std = 0.02;  // of the normal distribution from which the weights start; biases start at 0
  bool tf32 = false;
  std::optional<LinearPart> part = {};   // that this rank holds; one that is the whole is as none
  Sharing bias_sharing = Sharing::copy;  // of a bias that every rank holds
};

class Linear {
 public:
  // Lists name.weight [out, in] of every name, stacked, then name.bias [out] of every name, stacked; of a part, its
  // share of them.
  Linear(Parameters& parameters, const std::vector<std::string>& names, const LinearLayerOptions& options);

  // [M, in] in the activation's dtype -> [M, names·out] in `out_dtype`. Error in a layer of which this rank holds a
  // part of the inputs: its product is a part of a sum.
  Tensor forward(const Tensor& x, DType out_dtype, Activation activation = Activation::none) const;

  const Tensor& weight() const { return parameters_.get(weight_); }
  Tensor bias() const { return bias_ < 0 ? Tensor() : parameters_.get(bias_); }  // undefined in a layer without one

 private:
  const Parameters& parameters_;
  int weight_ = 0, bias_ = -1;
  bool tf32_, is_part_of_sum_ = false;
};

}  // namespace isobar
