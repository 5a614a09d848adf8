// A U-Net of convolutions, from fields to fields on the same grid. Down and up again, each level halves the grid:
//
//   d1 = leaky(down1(x)), d2 = leaky(down2(d1)), ...                     to the deepest level, n
//   u  = relu(upn(dn));  u = relu(up(n-1)([u, d(n-1)]));  ...;  u = relu(up2([u, d2]))
//   y  = tanh(last([u, d1]))                                             tanh only with `bounded`
//
// down is a convolution, up and last are transposed convolutions: 4 wide on each axis, with stride 2 and padding 1. The
// brackets join channels. Level i has width · min(2^(i-1), 8) channels: 64, 128, 256, 512, 512, 512. With 6 levels and
// 3 axes it is NERSC's network from N-body to hydrodynamic simulations (`full_scale`), with 5 the smaller one.
// Parameter names and layouts are those of its PyTorch model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/layers/conv.h"
#include "models/network.h"

namespace isobar {

struct UnetConfig {
  std::int64_t width = 64, levels = 6;     // channels of the first level
  std::vector<Edge> edge = {Edge::zeros};  // one for all axes, or one for each
  bool bounded = true;                     // the output is in (-1, 1)
  ConvInit init = {};
};

class Unet : public Network {
 public:
  // Registers its parameters; they must be allocated before the first forward pass. ports: fields in and out, with one
  // to three axes, the same for both, multiples of 2^levels.
  Unet(const Ports& ports, const UnetConfig& config, const Build& build);

  std::string name() const override { return "U-Net"; }
  // Each convolution. What passes between them: the outputs of the levels that are still needed, the latest at the end.
  std::span<const Stage> stages() const override { return stages_; }
  bool has_channels_last() const override { return true; }

 private:
  Tensor first_level(const Tensor& x) const;
  std::vector<Stage> cut(bool recompute) const;

  DType activation_;  // of products
  std::vector<Conv> down_;
  std::vector<ConvTranspose> up_;  // from the deepest level to the second
  ConvTranspose last_;
  std::vector<Stage> stages_;
};

}  // namespace isobar
