// The linear layer y = x·Wᵀ + b. Several layers that read the same x can be stacked into one matrix product: queries,
// keys and values are one layer here, and three in a file of weights.
//
// Tensor-parallel ranks can share its outputs or its inputs (Split). A branch of a block begins with a layer whose
// outputs they share and ends with one whose inputs they share; what lies between needs no other rank (comm/ops.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/build.h"
#include "models/layers/residual_stream.h"

namespace isobar {

enum class Split : std::uint8_t {
  none,     // every rank has all of the layer, and computes all of it
  outputs,  // rows of W and elements of b. x: rows of the stream, y: all rows that a branch computes
  inputs    // columns of W. x: as above, y: rows of the stream
};

struct LinearSpec {
  std::int64_t in = 0, out = 0;  // `out` of each of the stacked layers
  bool bias = true;
  double init_std = 0.02;  // of the normal distribution from which the weights start; biases start at 0
  Split split = Split::none;
  std::int64_t together = 1;  // inputs or outputs are shared in groups of so many
  // y in the parameters' dtype instead of x's: what a loss reads, or the residual stream.
  bool wide = false;
};

class Linear {
 public:
  // Lists name.weight [out, in] of every name, stacked, then name.bias [out] of every name, stacked; of a layer that is
  // split, this rank's part of them.
  Linear(const Build& build, const std::vector<std::string>& names, const LinearSpec& spec);

  // [M, in] in the activation's dtype -> [M, names·out], the part of this rank where outputs are split.
  Tensor operator()(const Tensor& x, const Pass& pass, Activation activation = Activation::none) const;

  const Tensor& weight() const { return parameters_.get(weight_); }
  Tensor bias() const { return bias_ < 0 ? Tensor() : parameters_.get(bias_); }  // undefined in a layer without one
  Weights weights() const { return bias_ < 0 ? Weights{weight_} : Weights{weight_, bias_}; }
  // Of the inputs or outputs that are split, what this rank has, and how many there are.
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
