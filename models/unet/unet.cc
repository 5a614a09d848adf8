#include "models/unet/unet.h"

#include <algorithm>

#include "kernels/common/check.h"

namespace isobar {
namespace {

std::int64_t channels_of(std::int64_t level, const UnetConfig& c) {
  return c.width * std::min<std::int64_t>(std::int64_t{1} << (level - 1), 8);
}

// Of what comes up to a level: joined with its own output, except at the deepest one.
std::int64_t channels_above(std::int64_t level, const UnetConfig& c) {
  return channels_of(level, c) * (level == c.levels ? 1 : 2);
}

ConvSpec halving(std::int64_t in, std::int64_t out, const Ports& ports, const UnetConfig& c, Pointwise activation) {
  return {.in = in,
          .out = out,
          .kernel = std::vector<std::int64_t>(ports.in.size() - 1, 4),
          .stride = {2},
          .pad = {1},
          .edge = c.edge,
          .activation = activation,
          .init = c.init};
}

std::vector<Conv> down_of(const Ports& ports, const UnetConfig& c, const Build& build) {
  std::vector<Conv> down;
  for (std::int64_t level = 1; level <= c.levels; ++level) {
    const std::int64_t in = level == 1 ? ports.in[0] : channels_of(level - 1, c);
    down.emplace_back(build, concat("conv_down", level, ".0"),
                      halving(in, channels_of(level, c), ports, c, Pointwise::leaky_relu));
  }
  return down;
}

std::vector<ConvTranspose> up_of(const Ports& ports, const UnetConfig& c, const Build& build) {
  std::vector<ConvTranspose> up;
  for (std::int64_t level = c.levels; level >= 2; --level)
    up.emplace_back(build, concat("conv_up", level, ".0"),
                    halving(channels_above(level, c), channels_of(level - 1, c), ports, c, Pointwise::relu));
  return up;
}

ConvTranspose last_of(const Ports& ports, const UnetConfig& c, const Build& build) {
  ConvSpec spec = halving(channels_above(1, c), ports.out[0], ports, c, c.bounded ? Pointwise::tanh : Pointwise::none);
  spec.zero = ports.starts_at_zero;
  spec.wide = true;
  return {build, "conv_last", spec};
}

}  // namespace

// x: [B, S, V], in the dtype of products or in another one.
Tensor Unet::first_level(const Tensor& x) const {
  Shape expected{x.size(0)};
  expected.insert(expected.end(), ports().in.begin() + 1, ports().in.end());
  expected.push_back(ports().in[0]);
  ISOBAR_CHECK(x.shape() == expected, "the model takes fields ", to_string(expected), ", channels last, not ",
               to_string(x.shape()));
  return down_.front()(x.to(activation_));
}

std::vector<Stage> Unet::cut(bool recompute) const {
  std::vector<Stage> stages;
  stages.push_back(
      {[this](const Tensors& in, const Pass&) { return Tensors{first_level(in[0])}; }, down_.front().weights()});
  for (const Conv& down : std::span(down_).subspan(1)) {
    const auto forward = [&down](const Tensors& levels, const Pass&) {
      Tensors out = levels;
      out.push_back(down(levels.back()));
      return out;
    };
    stages.push_back({forward, down.weights(), recompute});
  }
  for (const ConvTranspose& up : up_) {
    const auto forward = [&up](const Tensors& levels, const Pass&) {
      Tensors out(levels.begin(), levels.end() - 2);
      out.push_back(concat_channels({up(levels.back()), levels[levels.size() - 2]}));
      return out;
    };
    stages.push_back({forward, up.weights(), recompute});
  }
  stages.push_back({[this](const Tensors& in, const Pass&) { return Tensors{last_(in[0])}; }, last_.weights()});
  return stages;
}

// The order of the members is the order of their parameters in the flat buffers.
Unet::Unet(const Ports& ports, const UnetConfig& config, const Build& build)
    : Network(ports),
      activation_(build.compute.activation()),
      down_(down_of(ports, config, build)),
      up_(up_of(ports, config, build)),
      last_(last_of(ports, config, build)),
      stages_(cut(build.compute.recompute)) {}

}  // namespace isobar
