// The ladder of the matrix product on a CPU. Like kernels/*_cpu.cc this file is compiled once for each instruction set
// (kernels/cpu/isa.h).
#include "bench/ladder/product.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"

namespace isobar::cpu::ISOBAR_ISA {

// ---- 1. naive -------------------------------------------------------------------------------------------------------

// The definition: each number of C is a row of A times a column of B. Both things that made the naive layer norm slow
// are here. `sum` waits for itself. And B is read down a column: of each cache line of 64 bytes, 16 numbers, one is
// used, and the line is gone before its neighbour is wanted, when a column has more lines than the cache.
void product_naive(const ProductArgs& p) {
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < p.k; ++k) sum += p.a[i * p.k + k] * p.b[k * p.n + j];
      p.c[i * p.n + j] = sum;
    }
  }
}

// ---- 2. ordered -----------------------------------------------------------------------------------------------------

// The two inner loops are exchanged. Now the innermost runs along a row of B and a row of C: whole cache lines are
// used, no number waits for itself, and the compiler uses vectors. Every product is the same, and so is the order in
// which the products of one number of C are added. But each addition loads a vector of C and stores it again: two loads
// and a store for one multiply-add.
void product_ordered(const ProductArgs& p) {
  for (std::int64_t i = 0; i < p.m; ++i) {
    float* c = p.c + i * p.n;
    for (std::int64_t j = 0; j < p.n; ++j) c[j] = 0;
    for (std::int64_t k = 0; k < p.k; ++k) {
      const float a = p.a[i * p.k + k];
      const float* b = p.b + k * p.n;
#pragma omp simd
      for (std::int64_t j = 0; j < p.n; ++j) c[j] += a * b[j];
    }
  }
}

// ---- 3. tiled in registers ------------------------------------------------------------------------------------------

// A tile of C, kRows x kColumns, stays in registers while k runs: with AVX-512 8 rows of 3 vectors, 24 of the 32
// registers. A step of k loads 3 vectors of B and 8 numbers of A, and makes 24 multiply-adds: half a load for each
// instead of two. That is the one idea that makes products fast, on every machine: what is loaded is used several times
// while it is in a register.
constexpr int kRows = kTileRows, kColumns = kPanel<float>;
using TileOfC = Vector<float>[kRows][kTileVectors];

// tile += A · B over `depth` steps; A(i, k) = a[i · a_row + k · a_step], B(k, :) = b + k · b_step.
ISOBAR_INLINE void add_products(const float* a, std::int64_t a_row, std::int64_t a_step, const float* b,
                                std::int64_t b_step, std::int64_t depth, TileOfC& tile) {
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector<float> row[kTileVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) row[v] = load(b + k * b_step + v * kLanes<float>);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vector<float> factor = broadcast(a[i * a_row + k * a_step]);
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) tile[i][v] += factor * row[v];
    }
  }
}

ISOBAR_INLINE void store_tile(const TileOfC& tile, float* c, std::int64_t c_row) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) store(c + i * c_row + v * kLanes<float>, tile[i][v]);
}

// Rows and columns that fill no tile are computed as in rung 1.
void product_edge(const ProductArgs& p, std::int64_t i, std::int64_t row_end, std::int64_t column,
                  std::int64_t column_end) {
  for (; i < row_end; ++i) {
    for (std::int64_t j = column; j < column_end; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < p.k; ++k) sum += p.a[i * p.k + k] * p.b[k * p.n + j];
      p.c[i * p.n + j] = sum;
    }
  }
}

void product_tiled(const ProductArgs& p) {
  const std::int64_t whole_rows = p.m / kRows * kRows, whole_columns = p.n / kColumns * kColumns;
  for (std::int64_t j = 0; j < whole_columns; j += kColumns) {
    for (std::int64_t i = 0; i < whole_rows; i += kRows) {
      TileOfC tile = {};
      add_products(p.a + i * p.k, p.k, 1, p.b + j, p.n, p.k, tile);
      store_tile(tile, p.c + i * p.n + j, p.n);
    }
  }
  product_edge(p, 0, whole_rows, whole_columns, p.n);
  product_edge(p, whole_rows, p.m, 0, p.n);
}

// ---- 4. packed and blocked ------------------------------------------------------------------------------------------

// What rung 3 reads of B, rows of 192 bytes that lie a whole row of B apart, touches another page of memory at each
// step, and lines that lie a power of two apart fall into the same few places of a cache. So A and B are copied first,
// in the order in which the tile reads them: B as panels of kColumns columns, A as panels of kRows rows. And k is cut
// into pieces of kDepth, so that a panel of B (24 KB) stays in the first-level cache while all panels of A (kDepth
// columns of A) come by from the second. A copy is m·k + k·n numbers for m·n·k products: it is soon paid for. Edges are
// filled up with zeros: whole tiles are computed everywhere.
constexpr std::int64_t kDepth = 128;

// Columns [j, j + kColumns) of rows [k, k + depth) of B, row by row.
ISOBAR_INLINE void pack_b(const ProductArgs& p, std::int64_t k, std::int64_t depth, std::int64_t j, float* to) {
  const std::int64_t count = min(kColumns, p.n - j);
  for (std::int64_t row = 0; row < depth; ++row, to += kColumns) {
    const float* from = p.b + (k + row) * p.n + j;
    for (std::int64_t column = 0; column < count; ++column) to[column] = from[column];
    for (std::int64_t column = count; column < kColumns; ++column) to[column] = 0;
  }
}

// Rows [i, i + kRows) of columns [k, k + depth) of A, column by column.
ISOBAR_INLINE void pack_a(const ProductArgs& p, std::int64_t i, std::int64_t k, std::int64_t depth, float* to) {
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t column = 0; column < depth; ++column)
      to[column * kRows + row] = i + row < p.m ? p.a[(i + row) * p.k + k + column] : 0;
  }
}

// Adds a tile to C at (i, j), or overwrites it; only what C has of it.
ISOBAR_INLINE void give_tile(const ProductArgs& p, const TileOfC& tile, std::int64_t i, std::int64_t j,
                             bool overwrite) {
  float numbers[kRows * kColumns];
  store_tile(tile, numbers, kColumns);
  const std::int64_t rows = min(kRows, p.m - i), columns = min(kColumns, p.n - j);
  for (std::int64_t row = 0; row < rows; ++row) {
    float* c = p.c + (i + row) * p.n + j;
    const float* from = numbers + row * kColumns;
    for (std::int64_t column = 0; column < columns; ++column) c[column] = (overwrite ? 0 : c[column]) + from[column];
  }
}

void multiply_packed(const ProductArgs& p) {
  const std::int64_t panels = ceil_div(p.m, std::int64_t{kRows});
  auto* const a = static_cast<float*>(scratch(Scratch::gemm_a, sizeof(float) * panels * kRows * kDepth));
  auto* const b = static_cast<float*>(scratch(Scratch::gemm_b, sizeof(float) * kDepth * kColumns));
  for (std::int64_t k = 0; k < p.k; k += kDepth) {
    const std::int64_t depth = min(kDepth, p.k - k);
    for (std::int64_t panel = 0; panel < panels; ++panel)
      pack_a(p, panel * kRows, k, depth, a + panel * kRows * kDepth);
    for (std::int64_t j = 0; j < p.n; j += kColumns) {
      pack_b(p, k, depth, j, b);
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        TileOfC tile = {};
        add_products(a + panel * kRows * kDepth, 1, kRows, b, kColumns, depth, tile);
        give_tile(p, tile, panel * kRows, j, k == 0);
      }
    }
  }
}

void product_packed(const ProductArgs& p) {
  multiply_packed(p);
}

// ---- 5. threaded ----------------------------------------------------------------------------------------------------

// Each thread has a range of the rows of C, whole tiles of them, and multiplies as in rung 4. Each packs all of B for
// itself: k·n numbers copied a thread, beside m·n·k / threads products.
void product_threaded(const ProductArgs& p) {
  parallel_for(ceil_div(p.m, std::int64_t{kRows}), 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kRows, last = min(end * kRows, p.m);
    ProductArgs rows = p;
    rows.m = last - first;
    rows.a += first * p.k;
    rows.c += first * p.n;
    multiply_packed(rows);
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(product_naive, ProductArgs)
ISOBAR_CPU_KERNEL(product_ordered, ProductArgs)
ISOBAR_CPU_KERNEL(product_tiled, ProductArgs)
ISOBAR_CPU_KERNEL(product_packed, ProductArgs)
ISOBAR_CPU_KERNEL(product_threaded, ProductArgs)
