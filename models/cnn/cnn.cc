#include "models/cnn/cnn.h"

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::int64_t kKernel = 3, kPad = 1;

std::vector<Conv> convs_of(const Ports& ports, const CnnConfig& c, const Build& build) {
  const std::size_t axes = ports.in.size() - 1;
  ConvSpec spec{.in = c.width,
                .out = c.width,
                .kernel = std::vector(axes, kKernel),
                .pad = {kPad},
                .edge = c.edge,
                .activation = Pointwise::leaky_relu};
  ConvSpec first = spec, last = spec;
  first.in = ports.in[0];
  last.out = ports.out[0];
  last.activation = c.activate_output ? spec.activation : Pointwise::none;
  last.zero = ports.starts_at_zero;
  last.wide = true;

  std::vector<Conv> convs;
  convs.emplace_back(build, "conv_in.0", first);
  for (std::int64_t i = 0; i + 2 < c.depth; ++i) convs.emplace_back(build, concat("conv_hidden.", i, ".0"), spec);
  convs.emplace_back(build, "conv_out.0", last);
  return convs;
}

}  // namespace

Tensor Cnn::channels_last(const Tensor& image) const {
  Shape expected{image.size(0)};
  expected.insert(expected.end(), ports().in.begin(), ports().in.end());
  ISOBAR_CHECK(image.shape() == expected, "the model takes fields ", to_string(expected), ", not ",
               to_string(image.shape()));
  return to_channels_last(image, activation_);
}

std::vector<Stage> Cnn::cut(bool recompute) const {
  std::vector<Stage> stages;
  for (const Conv& conv : convs_) {
    const bool is_first = &conv == &convs_.front(), is_last = &conv == &convs_.back();
    const auto forward = [this, &conv, is_first, is_last](const Tensors& in, const Pass&) {
      const Tensor y = conv(is_first ? channels_last(in[0]) : in[0]);
      return Tensors{is_last ? to_channels_first(y) : y};
    };
    stages.push_back({forward, conv.weights(), recompute && !is_first && !is_last});
  }
  return stages;
}

// The order of the members is the order of their parameters in the flat buffers.
Cnn::Cnn(const Ports& ports, const CnnConfig& config, const Build& build)
    : Network(ports),
      activation_(build.compute.activation()),
      convs_(convs_of(ports, config, build)),
      stages_(cut(build.compute.recompute)) {}

}  // namespace isobar
