// The index of operations of networks of convolutions: a third part of engine/ops.h. Activations and weights have their
// channels last; S stands for one to three axes.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tensor.h"
#include "kernels/conv/conv.h"
#include "kernels/mean_loss.h"

namespace isobar {

// Each list has one entry for all axes, or one for each.
struct ConvOptions {
  std::vector<std::int64_t> stride = {1}, pad = {0};
  std::vector<std::int64_t> pad_behind = {};  // empty: as pad, which is then the padding on both sides
  std::vector<Edge> edge = {Edge::zeros};
  Pointwise activation = Pointwise::none;
  DType out_dtype = DType::fp32;
  bool tf32 = false;
};

struct MeanLossOptions {
  ErrorKind kind = ErrorKind::squared;
  double density_weight = 0;  // of channel 0 (kernels/mean_loss.h)
};

// [B,S,Ci], [Co,K,Ci], [Co] -> [B,O,Co], O = (S + pad + pad_behind - K)/stride + 1; the bias may be undefined.
Tensor conv(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options);
// [B,S,Ci], [Ci,K,Co], [Co] -> [B,O,Co], O = (S - 1)·stride - pad - pad_behind + K; the bias may be undefined.
Tensor conv_transpose(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options);
// [B,S,C0], [B,S,C1], ... -> [B,S,C0+C1+...].
Tensor concat_channels(const std::vector<Tensor>& parts);
// [B,C,S] -> [B,S,C].
Tensor to_channels_last(const Tensor& x, DType out_dtype);
// [B,S,C] -> [B,C,S], in the accumulator's dtype.
Tensor to_channels_first(const Tensor& x);
// [B,S,C], [B,S,C] -> [1], a mean over points and channels; the target is in the accumulator's dtype.
Tensor mean_loss(const Tensor& pred, const Tensor& target, const MeanLossOptions& options);

// Without a gradient:

// [B,S,C], [B,S,C'] -> [n + 1] fp64 of the n channels that both have: what mean_loss makes its mean of.
Tensor error_sums(const Tensor& pred, const Tensor& target, ErrorKind kind, bool with_density);
// [B,C,D,H,W] fp32, [B] i32 -> [B,D,H,W,C]; without turns the volumes stay as they are. vector: the first channel of
// three that are the components of one, or -1 (kernels/turn.h).
Tensor turn(const Tensor& x, const Tensor& turns, std::int64_t vector, DType out_dtype);

}  // namespace isobar
