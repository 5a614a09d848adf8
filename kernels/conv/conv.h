// conv - convolution over 1 to 3 axes, and its gradients. The three kernels also make a transposed convolution
//
//   x       [B, I, Ci]    dtype         I, O and K stand for three axes each; of fewer, the first ones have extent 1.
//   weight  [Co, K, Ci]   dtype         Channels come last everywhere
//   y       [B, O, Co]    out_dtype
//   bias    [Co] of fwd, [Ci] of bwd_data   accumulator_of(dtype), or null
//
//   with stride s, padding p before the first element, pos = s·o - p + k on each axis:
//
//   fwd         y[b, o, co]  = act(bias[co] + Σ_{k, ci} weight[co, k, ci] · x[b, pos, ci])
//   bwd_data    dx[b, i, ci] = act(bias[ci] + Σ_{co} Σ_{k, o: pos = i} weight[co, k, ci] · dy[b, o, co])
//   bwd_weight  dweight[co, k, ci] = Σ_{b, o} dy[b, o, co] · x[b, pos, ci]
//
//   x outside [0, I) is 0 where the axis' edge is `zeros`, and x[pos mod I] where it is `wrap`; then bwd_data takes
//   pos mod I = i. The padding behind follows from O: it is (O - 1)·s + K - I - p. So a part of a volume, with the rows
//   of its neighbours that it needs (its halo) and no padding where it was cut, gives the bits of those rows of the
//   whole.
//
//   A transposed convolution with weight [Ci, K, Co] is bwd_data of the convolution whose weight is the same memory, so
//   that its y is this dx; its dx is fwd, and its dweight is bwd_weight with x and dy exchanged. The gradient of a bias
//   is column_sum.
//
//   dtypes        fp32, bf16, fp16, fp64 (CPU); out: the same, or fp32 of 16 bits; dweight: accumulator_of(dtype)
//   numerics      products accumulate in fp32 (fp64 for fp64); bias and activation come before the one rounding of each
//                 output. With few output channels a CPU sums over the input channels of each tap first, and then over
//                 the taps. One that multiplies bf16 with AVX512_BF16 takes operands and sums below 2^-126 for zero.
//                 tf32 lets a GPU round fp32 inputs to 10 mantissa bits, to nearest. Tensor cores multiply 16 bits and
//                 tf32 (conv_on_tensor_cores); they cut the sums in fp32 where others round them. On a GPU cuDNN may
//                 compute it (kernels/conv/engines.h): then the sum is rounded to the output's type before bias,
//                 activation and accumulation, and once more after them
//   deterministic yes: the same bits for any number of threads and however the batch is divided; of bwd_weight, for the
//                 same batch. An engine of cuDNN: the same bits for the same shape and engine. No atomics
//   workspace     conv_x_workspace(arguments) bytes, contents undefined before and after
//   limits        batch >= 0; extents, strides and channels >= 1; pad >= 0; less than 2^31 elements in a sample, and in
//                 the weight; a wrapped axis reaches at most its own length beyond either end; bias and activation of
//                 bwd_data need mode overwrite
//   aliasing      none
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "kernels/common/activation.h"
#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/grad.h"
#include "kernels/common/kernel.h"
#include "kernels/common/math.h"

namespace isobar {

// Always inline, as kernels/common/math.h tells why.
#define ISOBAR_CONV_FUNCTION inline __attribute__((always_inline)) constexpr

// As wide as the numbers beside it: what a kernel gets has no padding (kernels/conv/operands.cuh).
enum class Edge : std::int64_t { zeros, wrap };

struct ConvAxis {
  std::int64_t in = 1, out = 1, kernel = 1, stride = 1, pad = 0;  // pad: before the first element
  Edge edge = Edge::zeros;

  // Where the last window ends, counted from the first element.
  constexpr std::int64_t reach() const { return (out - 1) * stride + kernel - pad; }
  auto operator<=>(const ConvAxis&) const = default;
};

struct ConvShape {
  std::int64_t batch = 0, in_channels = 0, out_channels = 0;
  ConvAxis axes[3] = {};

  // Elements of a sample, without its channels; of the kernel.
  ISOBAR_CONV_FUNCTION std::int64_t in_points() const { return axes[0].in * axes[1].in * axes[2].in; }
  ISOBAR_CONV_FUNCTION std::int64_t out_points() const { return axes[0].out * axes[1].out * axes[2].out; }
  ISOBAR_CONV_FUNCTION std::int64_t taps() const { return axes[0].kernel * axes[1].kernel * axes[2].kernel; }
  // Elements of the tensors.
  ISOBAR_CONV_FUNCTION std::int64_t x() const { return batch * in_points() * in_channels; }
  ISOBAR_CONV_FUNCTION std::int64_t y() const { return batch * out_points() * out_channels; }
  ISOBAR_CONV_FUNCTION std::int64_t weight() const { return out_channels * taps() * in_channels; }
  auto operator<=>(const ConvShape&) const = default;
};

struct ConvFwdArgs {
  ConvShape shape;
  DType dtype = DType::fp32, out_dtype = DType::fp32;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* y = nullptr;
  Pointwise activation = Pointwise::none;
  bool tf32 = false;
  void* workspace = nullptr;
};

struct ConvBwdDataArgs {
  ConvShape shape;
  DType dtype = DType::fp32, out_dtype = DType::fp32;
  const void* dy = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* dx = nullptr;
  Pointwise activation = Pointwise::none;
  Grad mode = Grad::overwrite;
  bool tf32 = false;
  void* workspace = nullptr;
};

struct ConvBwdWeightArgs {
  ConvShape shape;
  DType dtype = DType::fp32;
  const void* x = nullptr;
  const void* dy = nullptr;
  void* dweight = nullptr;
  Grad mode = Grad::overwrite;
  bool tf32 = false;
  void* workspace = nullptr;
};

// The matrix product [m, k] · [k, n] that a kernel is.
struct ConvProduct {
  std::int64_t m = 0, n = 0, k = 0;
};
ISOBAR_CONV_FUNCTION ConvProduct conv_fwd_product(const ConvShape& s) {
  return {s.batch * s.out_points(), s.out_channels, s.taps() * s.in_channels};
}
// How often bwd_data's window has each tap of an axis: a wrapped x may also be read one length before and behind it
// (conv_bwd_data_axis, kernels/conv/window.cc).
ISOBAR_CONV_FUNCTION std::int64_t conv_images(const ConvAxis& axis) {
  return axis.edge == Edge::wrap && axis.out * axis.stride != axis.in ? 3 : 1;
}
// Of the largest class of elements of x that see the same taps: with stride s there are s, on each axis. No class has
// more rows or terms.
ISOBAR_CONV_FUNCTION ConvProduct conv_bwd_data_product(const ConvShape& s) {
  std::int64_t rows = s.batch, taps = 1;
  for (const ConvAxis& axis : s.axes) {
    rows *= ceil_div(axis.in, axis.stride);
    taps *= ceil_div(axis.kernel, axis.stride) * conv_images(axis);
  }
  return {rows, s.in_channels, taps * s.out_channels};
}
ISOBAR_CONV_FUNCTION ConvProduct conv_bwd_weight_product(const ConvShape& s) {
  return {s.out_channels, s.taps() * s.in_channels, s.batch * s.out_points()};
}

// How a GPU adds the terms of a product, by FMA: in parts of `terms`, each by itself, whose sums are then added in
// their order. parts > 1: each part has blocks of its own and leaves its sums in the workspace, since a small result
// alone would keep few multiprocessors busy. Of fwd and bwd_data the parts are the same whatever the number of rows.
struct ConvSplit {
  std::int64_t terms = 1, parts = 1;
};
inline constexpr std::int64_t kConvTerms = 1024, kConvTile = 64, kConvBlocks = 512;
constexpr std::int64_t conv_tiles(const ConvProduct& p) {
  return ceil_div(p.m, kConvTile) * ceil_div(p.n, kConvTile);
}
constexpr ConvSplit conv_split(const ConvProduct& p) {
  const std::int64_t parts = ceil_div(p.k, kConvTerms);
  return {kConvTerms, parts > 1 && conv_tiles(p) * parts <= kConvBlocks ? parts : 1};
}
constexpr ConvSplit conv_bwd_weight_split(const ConvProduct& p) {
  const std::int64_t by_terms = ceil_div(p.k, kConvTerms), by_tiles = kConvBlocks / conv_tiles(p);
  const std::int64_t parts = by_terms < by_tiles ? by_terms : by_tiles;
  return parts > 1 ? ConvSplit{ceil_div(p.k, parts), parts} : ConvSplit{p.k > 1 ? p.k : 1, 1};
}

// Whether a GPU multiplies on its tensor cores (kernels/conv/tensor_core.cuh), else by FMA: 16 bits, and fp32 that may
// be rounded to TF32. Windows of up to 1024 taps have a table of them there, and places are numbers of 32 bits.
constexpr bool conv_on_tensor_cores(const ConvShape& s, DType dtype, bool tf32) {
  constexpr std::int64_t kMaxTaps = 1024, kMaxPlace = 1 << 27;
  std::int64_t taps = 1;  // of bwd_data's window
  for (const ConvAxis& a : s.axes) {
    if (a.kernel > kMaxTaps || a.stride > kMaxPlace || a.pad > kMaxPlace || a.in > kMaxPlace || a.out > kMaxPlace ||
        a.reach() > kMaxPlace)
      return false;
    taps *= a.kernel * conv_images(a);
    if (taps > kMaxTaps) return false;
  }
  return is_16_bit(dtype) || (dtype == DType::fp32 && tf32);
}

// How tensor cores add the terms: up to kTensorCoreSum, 512 channels under 3³ taps, in one sum. Of fwd and bwd_data the
// parts are a matter of the terms alone, and so the same whatever the number of rows.
inline constexpr std::int64_t kTensorCoreSum = 27 * 512, kTensorCoreTerms = 2048;
inline constexpr std::int64_t kTensorCoreTile = 128, kTensorCoreBlocks = 1024;
constexpr std::int64_t tensor_core_tiles(const ConvProduct& p) {
  return ceil_div(p.m, kTensorCoreTile) * ceil_div(p.n, kTensorCoreTile);
}
constexpr ConvSplit tensor_core_split(const ConvProduct& p) {
  if (p.k <= kTensorCoreSum) return {p.k > 1 ? p.k : 1, 1};
  return {kTensorCoreTerms, ceil_div(p.k, kTensorCoreTerms)};
}
constexpr ConvSplit tensor_core_bwd_weight_split(const ConvProduct& p) {
  const std::int64_t by_terms = ceil_div(p.k, kConvTerms), by_tiles = kConvBlocks / tensor_core_tiles(p);
  const std::int64_t parts = by_terms < by_tiles ? by_terms : by_tiles;
  return parts > 1 ? ConvSplit{ceil_div(p.k, parts), parts} : ConvSplit{p.k > 1 ? p.k : 1, 1};
}
// Rows whose sums of parts the workspace holds. More rows are computed some at a time.
constexpr std::int64_t tensor_core_rows(const ConvProduct& p, const ConvSplit& split) {
  const std::int64_t blocks = ceil_div(p.n, kTensorCoreTile) * split.parts;  // of a tile of rows
  const std::int64_t rows = kTensorCoreTile * (blocks < kTensorCoreBlocks ? kTensorCoreBlocks / blocks : 1);
  return split.parts == 1 || p.m < rows ? p.m : rows;
}

constexpr std::size_t conv_workspace(std::int64_t rows, const ConvProduct& p, const ConvSplit& split) {
  return split.parts == 1 ? 0 : static_cast<std::size_t>(split.parts * rows * p.n) * sizeof(float);
}
template <class Args>
constexpr std::size_t conv_workspace(const Args& a, const ConvProduct& p, const ConvSplit& by_fma,
                                     const ConvSplit& by_tensor_cores) {
  return conv_on_tensor_cores(a.shape, a.dtype, a.tf32)
             ? conv_workspace(tensor_core_rows(p, by_tensor_cores), p, by_tensor_cores)
             : conv_workspace(p.m, p, by_fma);
}
constexpr std::size_t conv_fwd_workspace(const ConvFwdArgs& a) {
  const ConvProduct p = conv_fwd_product(a.shape);
  return conv_workspace(a, p, conv_split(p), tensor_core_split(p));
}
constexpr std::size_t conv_bwd_data_workspace(const ConvBwdDataArgs& a) {
  const ConvProduct p = conv_bwd_data_product(a.shape);
  return conv_workspace(a, p, conv_split(p), tensor_core_split(p));
}
constexpr std::size_t conv_bwd_weight_workspace(const ConvBwdWeightArgs& a) {
  const ConvProduct p = conv_bwd_weight_product(a.shape);
  return conv_workspace(a, p, conv_bwd_weight_split(p), tensor_core_bwd_weight_split(p));
}

constexpr Cost conv_cost(const ConvShape& s, std::size_t x_size, std::size_t weight_size, std::size_t y_size) {
  const double flops = 2.0 * s.batch * s.out_points() * s.out_channels * s.taps() * s.in_channels;
  const auto bytes = [](std::int64_t n, std::size_t size) { return static_cast<double>(n) * size; };
  return {.bytes = bytes(s.x(), x_size) + bytes(s.weight(), weight_size) + bytes(s.y(), y_size), .flops = flops};
}
constexpr Cost conv_fwd_cost(const ConvFwdArgs& a) {
  return conv_cost(a.shape, size_of(a.dtype), size_of(a.dtype), size_of(a.out_dtype));
}
constexpr Cost conv_bwd_data_cost(const ConvBwdDataArgs& a) {
  return conv_cost(a.shape, size_of(a.out_dtype), size_of(a.dtype), size_of(a.dtype));
}
constexpr Cost conv_bwd_weight_cost(const ConvBwdWeightArgs& a) {
  return conv_cost(a.shape, size_of(a.dtype), size_of(accumulator_of(a.dtype)), size_of(a.dtype));
}

// Throws an Error, "conv_fwd: ...", where the arguments are none that the contract promises. The kernels ask first.
void check_conv(const ConvFwdArgs& arguments);
void check_conv(const ConvBwdDataArgs& arguments);
void check_conv(const ConvBwdWeightArgs& arguments);

ISOBAR_KERNEL(conv_fwd, ConvFwdArgs)
ISOBAR_KERNEL(conv_bwd_data, ConvBwdDataArgs)
ISOBAR_KERNEL(conv_bwd_weight, ConvBwdWeightArgs)

#undef ISOBAR_CONV_FUNCTION

}  // namespace isobar
