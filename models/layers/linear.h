// The linear layer y = x·Wᵀ + b. Several layers that read the same x can be stacked into one matrix product: queries,
// keys and values are one layer here, and three in a file of weights.
//
// Tensor-parallel ranks can split its outputs or its inputs (Split). A branch of a block begins with a layer split by
// outputs and ends with one split by inputs; the computation between them needs no other rank (comm/ops.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/build.h"
#include "models/layers/residual_stream.h"

namespace isobar {

enum class Split : std::uint8_t {
  none,  // every rank has the whole layer and computes it
  // Splits rows of W and elements of b. x: rows of the stream; y: all rows that a branch computes.
  outputs,
  // Splits columns of W. x: all rows that a branch computes; y: rows of the stream.
  inputs
};

struct LinearSpec {
  std::int64_t in = 0, out = 0;  // `out` of each stacked layer
  bool bias = true;
  // Std of the normal distribution that initialises the weights; biases start at 0
  double init_std = 0.02;
  Split split = Split::none;
  std::int64_t multiple = 1;  // inputs or outputs are split in multiples of it
  // y has the parameters' dtype instead of x's: for a loss, or for the residual stream.
  bool wide = false;
};

class Linear {
 public:
  // Registers name.weight [out, in] of every name, stacked, then name.bias [out] of every name, stacked; in a split
  // layer, this rank's part of them.
  Linear(const Build& build, const std::vector<std::string>& names, const LinearSpec& spec);

  // [M, in] in the activation's dtype -> [M, names·out]; if outputs are split, this rank's part.
  Tensor operator()(const Tensor& x, const Pass& pass, Activation activation = Activation::none) const;

  const Tensor& weight() const { return parameters_.get(weight_); }
  Tensor bias() const { return bias_ < 0 ? Tensor() : parameters_.get(bias_); }  // undefined without bias
  Weights weights() const { return bias_ < 0 ? Weights{weight_} : Weights{weight_, bias_}; }
  // Of the split inputs or outputs: this rank's part, and the total number.
  Part part() const { return part_; }
  Span span() const { return {part_.begin, total_}; }

 private:
  const Parameters& parameters_;
  const Parallel& parallel_;
  LinearSpec spec_;
  ResidualStream stream_;
  Part part_;
  std::int64_t total_;
  bool tf32_;
  int weight_ = 0, bias_ = -1;
};

}  // namespace isobar
