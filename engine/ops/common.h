// Helpers that the files of engine/ops/ share.
#pragma once

#include <cstddef>

#include "engine/ops.h"
#include "engine/ops/operands.h"
#include "engine/tape.h"
#include "kernels/column_sum.h"
#include "kernels/common/run.h"
#include "kernels/elementwise.h"
#include "kernels/pointwise.h"

namespace isobar {

// Memory for one kernel call, returned to the pool when it goes out of scope (in stream order).
inline Tensor workspace(std::size_t bytes, Device device) {
  const MemoryScope scope("workspace");
  return Tensor::empty({static_cast<std::int64_t>((bytes + 3) / 4)}, DType::i32, device);
}

// A buffer of x's shape for a gradient in the backward pass.
inline Tensor gradient_like(const Tensor& x, DType dtype) {
  const MemoryScope scope("gradients");
  return Tensor::empty(x.shape(), dtype, x.device());
}
inline Tensor gradient_like(const Tensor& x) {
  return gradient_like(x, x.dtype());
}

// A new buffer with x's values. Two tensors must not get the same buffer as their gradient, since ops change it in
// place.
inline Tensor copy_of(const Tensor& x, DType dtype) {
  Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  ISOBAR_RUN(x.device(), cast, {.n = x.numel(), .x_dtype = x.dtype(), .y_dtype = dtype, .x = x.data(), .y = y.data()},
             current_stream());
  return y;
}

// slot (+)= sums over the rows of dy, seen as [rows, cols]: the gradient of a bias or of a repeated row.
inline void add_column_sum(const Tensor& dy, std::int64_t cols, const Gradients::Slot& slot) {
  const Tensor scratch = workspace(column_sum_workspace(dy.numel() / cols, cols, dy.dtype()), dy.device());
  ISOBAR_RUN(dy.device(), column_sum,
             {.rows = dy.numel() / cols,
              .cols = cols,
              .dtype = dy.dtype(),
              .x = dy.data(),
              .out = slot.tensor.data(),
              .mode = slot.mode,
              .workspace = scratch.data()},
             current_stream());
}

// dy becomes dy·f'(x), from y = f(x).
inline void backward_in_place(Pointwise kind, const Tensor& dy, const Tensor& y) {
  if (kind == Pointwise::none) return;
  ISOBAR_RUN(y.device(), pointwise_bwd,
             {.n = y.numel(), .dtype = y.dtype(), .kind = kind, .dy = dy.data(), .y = y.data(), .dx = dy.data()},
             current_stream());
}

}  // namespace isobar
