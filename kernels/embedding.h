// embedding - rows of a table, chosen by ids, and the gradient of the table
//
//   fwd   y[m, :] = table[ids[m] - first, :]
//   bwd   dtable[r, :] (+)= Σ dy[m, :] over the m with ids[m] = first + r, in the order of m
//   An id outside [first, first + rows) has no row here: its y is 0, and its dy is not read. So ranks that share a
//   table by rows add up their y.
//
//   ids     [M]           i32
//   table   [rows, cols]  dtype: fp32, bf16, fp16, fp64 (CPU)
//   y, dy   [M, cols]     y_dtype: dtype, or fp32 with a table of 16 bits
//   dtable  [rows, cols]  accumulator_of(y_dtype). Grad::overwrite writes zeros to rows without an id
//
//   numerics      forward: copies. Backward: fp32 (fp64 for fp64); the dy of a row are added one after the other, to
//                 what is there or to 0
//   deterministic yes: no atomics; the sums depend neither on threads nor on the device
//   memory        nothing is sorted and no workspace is needed. On the GPU a block owns some rows of the table, reads
//                 all ids, and adds what is its own: M·4 bytes a block, from the second-level cache
//   limits        M, rows, cols >= 0, all below 2^31
//   aliasing      none
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/grad.h"
#include "kernels/common/kernel.h"

namespace isobar {

struct EmbeddingFwdArgs {
  std::int64_t ids_count = 0, first = 0, rows = 0, cols = 0;  // ids_count: M
  DType dtype = DType::fp32, y_dtype = DType::fp32;
  const std::int32_t* ids = nullptr;
  const void* table = nullptr;
  void* y = nullptr;
};

// Error if the rows cannot be given in y_dtype.
void check_embedding(const EmbeddingFwdArgs& a);

struct EmbeddingBwdArgs {
  std::int64_t ids_count = 0, first = 0, rows = 0, cols = 0;
  DType y_dtype = DType::fp32;
  const std::int32_t* ids = nullptr;
  const void* dy = nullptr;
  void* dtable = nullptr;
  Grad mode = Grad::overwrite;
};

constexpr Cost embedding_fwd_cost(const EmbeddingFwdArgs& a) {
  const double n = static_cast<double>(a.ids_count) * a.cols;
  return {.bytes = n * (size_of(a.dtype) + size_of(a.y_dtype)) + 4.0 * a.ids_count};
}
// overwrite: every row of the table is written once. accumulate: at most M rows are read and written.
constexpr Cost embedding_bwd_cost(const EmbeddingBwdArgs& a) {
  const double n = static_cast<double>(a.ids_count) * a.cols, table = static_cast<double>(a.rows) * a.cols;
  const double touched = n < table ? n : table;
  const double moved = a.mode == Grad::overwrite ? table : 2 * touched;
  return {.bytes = n * size_of(a.y_dtype) + moved * size_of(accumulator_of(a.y_dtype)) + 4.0 * a.ids_count, .flops = n};
}

ISOBAR_KERNEL(embedding_fwd, EmbeddingFwdArgs)
ISOBAR_KERNEL(embedding_bwd, EmbeddingBwdArgs)

}  // namespace isobar
