// The fourth ladder, of a CPU only: a convolution of pictures in fp32, 3 x 3 with stride 1 and a padding of 1, channels
// last. docs/learn/ladders.md walks through its rungs. The project's own is kernels/conv/, an implicit product.
//
//   y[b, i, j, co] = Σ_{k, l, ci} weight[co, k, l, ci] · x[b, i + k - 1, j + l - 1, ci],   x is 0 outside the picture
//
// bench/ladder/conv_cpu.cc holds the rungs.
#pragma once

#include <cstdint>

#include "kernels/common/stream.h"

namespace isobar {

struct ConvRungArgs {
  std::int64_t batch = 0, side = 0, in = 0, out = 0;  // samples, rows and columns of a picture, channels
  const float* x = nullptr;                           // [batch, side, side, in]
  const float* weight = nullptr;                      // [out, 3, 3, in]
  float* y = nullptr;                                 // [batch, side, side, out], overwritten

  std::int64_t points() const { return batch * side * side; }
  std::int64_t terms() const { return 9 * in; }
};

namespace cpu {
void conv_naive(const ConvRungArgs& a, Stream stream = {});
void conv_tiled(const ConvRungArgs& a, Stream stream = {});
void conv_threaded(const ConvRungArgs& a, Stream stream = {});
void conv_im2col(const ConvRungArgs& a, Stream stream = {});
void conv_gathered(const ConvRungArgs& a, Stream stream = {});
}  // namespace cpu

}  // namespace isobar
