// Differentiable collectives, and products built from them: a layer whose weights are sharded over the ranks of a group
// is written with these. They work like the ops of engine/ops.h: shapes are checked, the result is a new tensor, and
// the backward is recorded. All ranks of the group call the same ones in the same order. On a group of one rank each is
// its serial op, or nothing at all: no node, no copy, the same bits.
//
// Values are sent in the tensor's dtype, gradients in the dtype of the values. A sum adds in the accumulator's dtype
// and is rounded once. x, y: [M, C]. The M rows are split into contiguous ranges, part_of(M, rank, ranks), and each
// rank must get at least one row. r, s: ranks; x_r: the x of rank r; [r]: the rows of rank r.
//
//                    forward                         backward
//   copy_to          y_r = x (the same on all)       dx = Σ_s dy_s
//   sum_over         y = Σ_s x_s                     dx_r = dy (the same on all)
//   gather_rows      y = (x_0; x_1; ...)             dx_r = Σ_s dy_s[r]
//   scatter_rows     y_r = Σ_s x_s[r]                dx = (dy_0; dy_1; ...)
//   own_rows         y_r = x[r]                      dx = (dy_0; dy_1; ...)
//   all_rows         y = (x_0; x_1; ...)             dx_r = dy[r] (dy is the same on all)
//
// gather_rows and all_rows differ in what reads y: products with different weights, whose gradients are terms of a sum,
// or the same computation on every rank.
#pragma once

#include <cstdint>

#include "comm/parallel.h"
#include "engine/ops.h"

namespace isobar {

// `rows`: M, which a rank cannot derive from its own rows.
Tensor copy_to(const Tensor& x, const Communicator& group);
Tensor sum_over(const Tensor& x, const Communicator& group);
Tensor gather_rows(const Tensor& x, std::int64_t rows, const Communicator& group);
Tensor scatter_rows(const Tensor& x, const Communicator& group);
Tensor own_rows(const Tensor& x, const Communicator& group);
Tensor all_rows(const Tensor& x, std::int64_t rows, const Communicator& group);

// A branch of a block begins with a product whose outputs are sharded over the tp ranks, and ends with one whose inputs
// are sharded (Shoeybi et al. 2019, "Megatron-LM"). The heads or hidden channels in between need no other rank. x and y
// are whole on every rank, or with parallel.sequence its own rows (Korthikanti et al. 2022).
//
//   column_linear   y_r = act(x·W_rᵀ + b_r)          W_r: this rank's rows of W [N, K], b_r [N_r]
//                   x through copy_to, or gather_rows: [M, N_r] from x [M, K] or from its own rows
//   enter_branch    what column_linear does to x first
//   row_linear      y = Σ_s x_s·W_sᵀ + b             W_s: rank s's columns of W, x_s [M, K_s], b [N]
//                   through sum_over, or scatter_rows: [M, N] or its own rows
//   parallel_mlp    y = fc2(act(fc1 x)), both of them in one: w1 [H_r, K], b1 [H_r], w2 [N, H_r], b2 [N]
//
// `rows`: M. b and b2 are whole on every rank and added once, after the sum; they may be undefined. With one tp rank
// these are linear() and mlp(), with the bias in the product's epilogue. row_linear: Error for an activation.
Tensor enter_branch(const Tensor& x, std::int64_t rows, const Parallel& parallel);
Tensor column_linear(const Tensor& x, std::int64_t rows, const Tensor& weight, const Tensor& bias,
                     const LinearOptions& options, const Parallel& parallel);
Tensor row_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options,
                  const Parallel& parallel);
Tensor parallel_mlp(const Tensor& x, std::int64_t rows, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                    const Tensor& b2, const LinearOptions& options, const Parallel& parallel);

}  // namespace isobar
