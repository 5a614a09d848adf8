// column_sum on the CPU: a thread takes a block of rows and columns; the partial sums are added in block order.
#include "kernels/column_sum.h"

#include "kernels/common/math.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

// Columns at a time, so that their sums stay in the first-level cache.
constexpr std::int64_t kColumnChunk = 2048;

constexpr std::int64_t kMaxBlocks = 128;  // of rows
static_assert(kMaxBlocks <= kColumnSumBlocks);

// partial[c] = Σ x[r, c] over `rows` rows, in row order, for columns [first, last).
template <class T, class Acc>
void sum_block(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t first, std::int64_t last, Acc* partial) {
  for (std::int64_t c = first; c < last; ++c) partial[c] = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* from = x + row * cols;
#pragma omp simd
    for (std::int64_t c = first; c < last; ++c) partial[c] += convert<Acc>(from[c]);
  }
}

template <class T>
void sum(const ColumnSumArgs& a) {
  using Acc = accumulator_t<T>;
  const T* x = static_cast<const T*>(a.x);
  Acc* out = static_cast<Acc*>(a.out);
  Acc* partial = static_cast<Acc*>(a.workspace);
  std::int64_t block_rows = ceil_div(a.rows, kMaxBlocks);
  if (block_rows < kColumnSumRows) block_rows = kColumnSumRows;
  const std::int64_t blocks = ceil_div(a.rows, block_rows);
  const std::int64_t chunks = ceil_div(a.cols, kColumnChunk);
  const std::int64_t widest = a.cols < kColumnChunk ? a.cols : kColumnChunk;

  parallel_for(blocks * chunks, kGrain / (block_rows * widest + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t block = task / chunks, row = block * block_rows, left = a.rows - row;
      const std::int64_t first = task % chunks * kColumnChunk, rest = a.cols - first;
      sum_block(x + row * a.cols, left < block_rows ? left : block_rows, a.cols, first,
                first + (rest < kColumnChunk ? rest : kColumnChunk), partial + block * a.cols);
    }
  });
  parallel_for(a.cols, kGrain / (blocks + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    add_blocks(blocks, a.cols, partial, a.mode, begin, end, out);
  });
}

}  // namespace

void column_sum(const ColumnSumArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) { sum<T>(a); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(column_sum, ColumnSumArgs)
