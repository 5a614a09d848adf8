// cross_entropy - the loss of a classifier or a language model, and its gradient
//
//   Row r counts if labels[r] != ignore; R is the number of rows that count. With x = logits[r, :], y = labels[r]:
//     max[r] = max_c x[c]      sum[r] = Σ_c exp(x[c] - max[r])      row_loss[r] = log(sum[r]) + max[r] - x[y]
//     loss   = Σ_r row_loss[r] / R           prediction[r] = the c with the largest x[c]; the smallest c of a tie
//   bwd   dlogits[r, c] = upstream / R · (exp(x[c] - max[r]) / sum[r] - [c = y])
//   The same as PyTorch's torch.nn.functional.cross_entropy(logits, labels, ignore_index=ignore, reduction="mean").
//   c runs over the first classes - padding columns. The last `padding` columns are no classes, as those that round a
//   vocabulary up: they are not read, have no probability, and their dlogits is 0.
//
//   In two halves, where ranks share the columns of a row (Shoeybi et al. 2019, "Megatron-LM"). A rank has columns
//   columns.first, columns.first + 1, ... of the columns.total classes. Each makes
//     partial  max and sum over its own columns as above; at_label[r] = x[y] if it has column y, else 0;
//              best[r] = the class of its own largest x[c], the smallest of a tie; kNoClass if no x[c] is above -∞
//   The parts of all ranks are gathered, in their order, and each rank makes of them, for s over the ranks,
//     join     max[r] = max_s max_s[r]    sum[r] = Σ_s sum_s[r]·exp(max_s[r] - max[r])
//              row_loss[r] = log(sum[r]) + max[r] - Σ_s at_label_s[r]     sums = (Σ_r row_loss[r], R)
//   Where ranks share the rows too, their sums are added up. Then
//     finish   loss = sums[0] / sums[1],   counted = R = sums[1]
//     bwd      as above, with the max and sum of whole rows, for the columns that the rank has
//   A rank whose columns are all padding has max = the lowest finite number and sum = 0. One rank that has all columns
//   gets the bits of the forward in one piece.
//
//   logits, dlogits     [rows, classes]  dtype: fp32, bf16, fp16, fp64 (CPU)
//   labels              [rows]           i32
//   max, sum            [rows]           accumulator_of(dtype), written by the forward, read by the backward. Both are
//                                        kept, not their log-sum-exp: for large logits its rounding error would be a
//                                        relative error of every probability
//   row_loss            [rows]           accumulator_of(dtype)
//   prediction          [rows]           i32; null: not computed
//   loss                [1]              accumulator_of(dtype)
//   counted             [1]              i32: R, written by the forward, read by the backward
//   at_label            [rows]           accumulator_of(dtype), of the partial form
//   best                [rows]           i32; null: not computed
//   parts               [ranks, 3, rows] accumulator_of(dtype): max, sum and at_label of every rank
//   bests               [ranks, rows]    i32; null: not read, and prediction is not written
//   sums                [2]              fp64
//   upstream            a host number (1, a loss scale, 1/micro-batches) times *device_upstream (accumulator; null: 1)
//
//   a row that does not count    its logits are not read: max, sum and row_loss are 0, prediction is -1, dlogits is 0
//   a label outside [0, classes - padding), or [0, columns.total), that is not `ignore`: row_loss, loss and the row of
//                                dlogits are NaN
//   R = 0                        loss is NaN, as in PyTorch; dlogits is 0
//   a logit of NaN or +∞         sum, row_loss and loss are NaN, prediction is -1: such a row never counts as right
//   logits of -∞                 have probability 0; if all logits of a row are -∞, loss is NaN and prediction is 0
//
//   numerics      fp32 arithmetic (fp64 for fp64); rows are added up in fp64; one rounding an output
//   deterministic yes: no atomics, fixed order
//   memory        the forward reads the logits once. On the GPU it is one pass: each thread keeps a maximum, and
//                 rescales its sum when the maximum grows (Milakov and Gimelshein 2018, arXiv:1805.02867). On the CPU
//                 it is two passes over a row, which stays in the cache between them: loops without that branch are
//                 vectorised
//   limits        rows >= 0, classes >= 1 and 0 <= padding < classes, all below 2^31; with columns.total padding may
//                 be classes. ranks >= 1
//   aliasing      dlogits may be logits
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"
#include "kernels/common/window.h"

namespace isobar {

inline constexpr std::int32_t kIgnoredLabel = -100;                                 // PyTorch's default
inline constexpr std::int32_t kNoClass = std::numeric_limits<std::int32_t>::max();  // of `best`

struct CrossEntropyFwdArgs {
  std::int64_t rows = 0, classes = 0, padding = 0;
  DType dtype = DType::fp32;
  std::int32_t ignore = kIgnoredLabel;
  const void* logits = nullptr;
  const std::int32_t* labels = nullptr;
  void* max = nullptr;
  void* sum = nullptr;
  void* row_loss = nullptr;
  std::int32_t* prediction = nullptr;  // null: not computed
  void* loss = nullptr;
  std::int32_t* counted = nullptr;
};

struct CrossEntropyPartialArgs {
  std::int64_t rows = 0, classes = 0, padding = 0;
  Span columns = {};  // total 0: these are all
  DType dtype = DType::fp32;
  std::int32_t ignore = kIgnoredLabel;
  const void* logits = nullptr;
  const std::int32_t* labels = nullptr;
  void* max = nullptr;
  void* sum = nullptr;
  void* at_label = nullptr;
  std::int32_t* best = nullptr;  // null: not computed
};

struct CrossEntropyJoinArgs {
  std::int64_t rows = 0, ranks = 0;
  DType dtype = DType::fp32;  // of the logits
  std::int32_t ignore = kIgnoredLabel;
  const std::int32_t* labels = nullptr;
  const void* parts = nullptr;
  const std::int32_t* bests = nullptr;  // null: no predictions
  void* max = nullptr;
  void* sum = nullptr;
  void* row_loss = nullptr;
  std::int32_t* prediction = nullptr;  // null: not computed
  double* sums = nullptr;
};

struct CrossEntropyFinishArgs {
  DType dtype = DType::fp32;  // of the logits
  const double* sums = nullptr;
  void* loss = nullptr;
  std::int32_t* counted = nullptr;
};

struct CrossEntropyBwdArgs {
  std::int64_t rows = 0, classes = 0, padding = 0;
  Span columns = {};  // total 0: these are all
  DType dtype = DType::fp32;
  std::int32_t ignore = kIgnoredLabel;
  const void* logits = nullptr;
  const std::int32_t* labels = nullptr;
  const void* max = nullptr;
  const void* sum = nullptr;
  const std::int32_t* counted = nullptr;
  double upstream = 1;
  const void* device_upstream = nullptr;
  void* dlogits = nullptr;
};

constexpr Cost cross_entropy_fwd_cost(const CrossEntropyFwdArgs& a) {
  const double n = static_cast<double>(a.rows) * (a.classes - a.padding);
  const double row = 4.0 + 3 * size_of(accumulator_of(a.dtype)) + (a.prediction != nullptr ? 4 : 0);
  return {.bytes = n * size_of(a.dtype) + row * a.rows, .flops = 4 * n};
}
constexpr Cost cross_entropy_partial_cost(const CrossEntropyPartialArgs& a) {
  const double n = static_cast<double>(a.rows) * (a.classes - a.padding);
  const double row = 4.0 + 3 * size_of(accumulator_of(a.dtype)) + (a.best != nullptr ? 4 : 0);
  return {.bytes = n * size_of(a.dtype) + row * a.rows, .flops = 4 * n};
}
constexpr Cost cross_entropy_join_cost(const CrossEntropyJoinArgs& a) {
  const double n = static_cast<double>(a.rows) * a.ranks, number = size_of(accumulator_of(a.dtype));
  const double row = 4.0 + 3 * number + (a.prediction != nullptr ? 4 : 0);
  return {.bytes = n * (3 * number + (a.bests != nullptr ? 4 : 0)) + row * a.rows, .flops = 5 * n + 4.0 * a.rows};
}
constexpr Cost cross_entropy_finish_cost(const CrossEntropyFinishArgs& a) {
  return {.bytes = 2 * sizeof(double) + 4.0 + size_of(accumulator_of(a.dtype)), .flops = 1};
}
constexpr Cost cross_entropy_bwd_cost(const CrossEntropyBwdArgs& a) {
  const double n = static_cast<double>(a.rows) * a.classes, read = n - static_cast<double>(a.rows) * a.padding;
  const double row = 4.0 + 2 * size_of(accumulator_of(a.dtype));
  return {.bytes = (read + n) * size_of(a.dtype) + row * a.rows, .flops = 4 * read};
}

ISOBAR_KERNEL(cross_entropy_fwd, CrossEntropyFwdArgs)
ISOBAR_KERNEL(cross_entropy_partial, CrossEntropyPartialArgs)
ISOBAR_KERNEL(cross_entropy_join, CrossEntropyJoinArgs)
ISOBAR_KERNEL(cross_entropy_finish, CrossEntropyFinishArgs)
ISOBAR_KERNEL(cross_entropy_bwd, CrossEntropyBwdArgs)

}  // namespace isobar
