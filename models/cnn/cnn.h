// A plain convolutional network, from fields to fields on the same grid: `depth` convolutions, each followed by
// LeakyReLU(0.01).
//
//   x = act(conv_in(image))              channels of the image -> width
//   depth - 2 times:  x = act(conv_hidden(x))                       width -> width
//   y = act(conv_out(x))                 width -> channels of the output; act only with `activate_output`
//
// Every convolution is 3 wide on each axis and padded by 1 on both sides, with zeros or, where the edge wraps, with the
// other end of the axis. Parameter names and layouts are those of the PyTorch model in NERSC's course on training with
// several GPUs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/layers/conv.h"
#include "models/network.h"

namespace isobar {

struct CnnConfig {
  std::int64_t width = 64, depth = 5;      // channels of the hidden layers; number of convolutions, 2 or more
  std::vector<Edge> edge = {Edge::zeros};  // one for all axes, or one for each
  bool activate_output = false;
};

class Cnn : public Network {
 public:
  // Registers its parameters; they must be allocated before the first forward pass. ports: fields in and out, with one
  // to three axes, the same for both.
  Cnn(const Ports& ports, const CnnConfig& config, const Build& build);

  std::string name() const override { return "CNN"; }
  // Each convolution.
  std::span<const Stage> stages() const override { return stages_; }

 private:
  Tensor channels_last(const Tensor& image) const;
  std::vector<Stage> cut(bool recompute) const;

  DType activation_;  // of products
  std::vector<Conv> convs_;
  std::vector<Stage> stages_;
};

}  // namespace isobar
