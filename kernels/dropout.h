// dropout - zero elements at random and scale the rest; and drop_path, the same for whole samples
//
//   dropout     y[i]    = keep(g(i)) ? x[i]/(1-p) : 0
//   drop_path   y[r, i] = keep(b(r)) ? x[r, i]/(1-p) : 0
//               keep(g) = random_bits(seed, stream, g) >= drop_threshold(p)
//
//   x, y          [n] / [rows, cols]   dtype: fp32, bf16, fp16, fp64 (CPU)
//   stream_offset   [1], on the device, or null: is added to stream (kernels/common/rng.h)
//   window        the position of the block in the tensor of the global batch (kernels/common/window.h). g(i) is the
//                 index of element i in that whole tensor; if the block is the whole: i. b(r) is the sample of row r in
//                 the global batch; by default: r. So a mask does not depend on how the whole is cut
//   gradient      the same call on dy: the mask is drawn again from (seed, stream), nothing is stored
//   numerics      one multiplication in fp32 (fp64 for fp64), one rounding
//   deterministic yes, and the same mask on every device
//   limits        0 <= p < 1; the block lies in the whole; on CUDA: if dropout's block is not the whole, its rows end
//                 before row 2^31
//   aliasing      y may be x
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"
#include "kernels/common/window.h"

namespace isobar {

struct DropoutArgs {
  std::int64_t n = 0;
  DType dtype = DType::fp32;
  float p = 0;
  std::uint64_t seed = 0, stream = 0;
  const std::uint64_t* stream_offset = nullptr;
  ElementWindow window = {};
  const void* x = nullptr;
  void* y = nullptr;
};

struct DropPathArgs {
  std::int64_t rows = 0, cols = 0;
  DType dtype = DType::fp32;
  float p = 0;
  std::uint64_t seed = 0, stream = 0;
  const std::uint64_t* stream_offset = nullptr;
  RowWindow window = {};
  const void* x = nullptr;
  void* y = nullptr;
};

constexpr Cost dropout_cost(const DropoutArgs& a) {
  return {.bytes = 2.0 * a.n * size_of(a.dtype), .flops = 1.0 * a.n};
}
constexpr Cost drop_path_cost(const DropPathArgs& a) {
  const double n = static_cast<double>(a.rows) * a.cols;
  return {.bytes = 2 * n * size_of(a.dtype), .flops = n};
}

ISOBAR_KERNEL(dropout, DropoutArgs)
ISOBAR_KERNEL(drop_path, DropPathArgs)

}  // namespace isobar
