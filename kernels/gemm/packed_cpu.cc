#include "kernels/gemm/packed.h"

#include <cstdint>
#include <type_traits>

#include "kernels/common/math.h"
#include "kernels/cpu/gelu_gate.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

using std::int64_t;

constexpr int64_t kSerialFlops = 200'000;  // less work than this is not worth a second thread
constexpr int64_t kBlockTiles = 14;        // tiles of rows whose A is packed at a time; they share the L2 cache with B

// Where rows of the packed A begin: not a power of two, or all rows of a tile would meet in a few cache sets.
constexpr int kRowStep = kGemmDepth + 16;

template <class In, class T>
ISOBAR_INLINE void convert_run(const In* __restrict__ from, T* __restrict__ to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = convert<T>(from[i]);
}

// The same for a number of elements that is known beforehand: inline, whatever the types.
template <int kCount, class In, class T>
ISOBAR_INLINE void convert_fixed(const In* __restrict__ from, T* __restrict__ to) {
  if constexpr (std::is_same_v<In, T>) {
    __builtin_memcpy(to, from, kCount * sizeof(T));
  } else {
#pragma omp simd
    for (int i = 0; i < kCount; ++i) to[i] = convert<T>(from[i]);
  }
}

// Rows [row, row + rows) of op(A), terms [begin, begin + depth). A tile of the packed A is [kTileRows, kRowStep] when
// the rows lie contiguous in memory, and [depth, kTileRows] when the columns do: either way packing copies runs.
template <bool kTransposed, class In, class T>
void pack_a(const Gemm& g, int64_t row, int64_t rows, int64_t begin, int64_t depth, T* __restrict__ packed) {
  const auto* a = static_cast<const In*>(g.a);
  constexpr int64_t kTileSize = kTileRows * kRowStep;
  if constexpr (kTransposed) {
    for (int64_t k = 0; k < depth; ++k) {
      const In* from = a + (begin + k) * g.m + row;
      for (int64_t i = 0; i < rows; i += kTileRows) {
        T* to = packed + i / kTileRows * kTileSize + k * kTileRows;
        if (rows - i >= kTileRows) {
          convert_fixed<kTileRows>(from + i, to);
        } else {
          convert_run(from + i, to, rows - i);
          for (int64_t j = rows - i; j < kTileRows; ++j) to[j] = T{0};
        }
      }
    }
  } else {
    for (int64_t i = 0; i < round_up(rows, kTileRows); ++i) {
      T* to = packed + i * kRowStep;
      if (i < rows) {
        convert_run(a + (row + i) * g.k + begin, to, depth);
      } else {
        for (int64_t k = 0; k < depth; ++k) to[k] = T{0};
      }
    }
  }
}

// Columns [column, column + kPanel) of op(B), terms [begin, begin + depth), as [depth, kPanel]; zeros beyond n.
template <class In, class T>
void pack_b(const Gemm& g, int64_t column, int64_t begin, int64_t depth, T* __restrict__ packed) {
  const auto* b = static_cast<const In*>(g.b);
  const int64_t width = min(kPanel<T>, g.n - column);
  if (g.transpose_b) {
    constexpr int64_t kRun = 16;  // terms of all columns that stay in the first-level cache while they are transposed
    for (int64_t first = 0; first < depth; first += kRun) {
      const int64_t last = min(first + kRun, depth);
      for (int64_t j = 0; j < kPanel<T>; ++j) {
        if (j < width) {
          const In* from = b + (column + j) * g.k + begin;
          for (int64_t k = first; k < last; ++k) packed[k * kPanel<T> + j] = static_cast<T>(from[k]);
        } else {
          for (int64_t k = first; k < last; ++k) packed[k * kPanel<T> + j] = T{0};
        }
      }
    }
  } else {
    for (int64_t k = 0; k < depth; ++k) {
      const In* from = b + (begin + k) * g.n + column;
      T* to = packed + k * kPanel<T>;
      if (width == kPanel<T>) {
        convert_fixed<kPanel<T>>(from, to);
      } else {
        convert_run(from, to, width);
        for (int64_t j = width; j < kPanel<T>; ++j) to[j] = T{0};
      }
    }
  }
}

// What is done with the sums of one tile. Sums over earlier terms are in `partial` (which is C itself when C has the
// accumulator's type).
template <class Out, class T>
struct Epilogue {
  const Gemm& g;
  T* partial;
  bool first, last;  // are these the first, the last terms of the sums?

  // One row of a tile. `width` is a constant for all but the last tile, so that the loops are straight vector code.
  ISOBAR_INLINE void row(T* __restrict__ sums, int64_t at, int64_t column, int64_t width) const {
    auto* c = static_cast<Out*>(g.c) + at;
    if (!first) {
      for (int64_t j = 0; j < width; ++j) sums[j] += partial[at + j];
    } else if (g.mode == Grad::accumulate) {
      for (int64_t j = 0; j < width; ++j) sums[j] += static_cast<T>(c[j]);
    }
    if (!last) {
      for (int64_t j = 0; j < width; ++j) partial[at + j] = sums[j];
      return;
    }
    if (g.bias != nullptr) {
      const T* bias = static_cast<const T*>(g.bias) + column;
      for (int64_t j = 0; j < width; ++j) sums[j] += bias[j];
    }
    if (g.pre != nullptr) {
      auto* pre = static_cast<Out*>(g.pre) + at;
      for (int64_t j = 0; j < width; ++j) pre[j] = static_cast<Out>(sums[j]);
    }
    if (g.activation == Activation::gelu_erf) {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) sums[j] *= GeluErf::gate(sums[j]).value;
    } else if (g.activation == Activation::gelu_tanh) {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) sums[j] *= GeluTanh::gate(sums[j]).value;
    }
    if (width == kPanel<T>)
      convert_fixed<kPanel<T>>(sums, c);
    else
      convert_run(sums, c, width);
  }

  // Asks for the lines of C that a tile will need, so that they come while it is being computed.
  ISOBAR_INLINE void prefetch(int64_t row_begin, int64_t column) const {
    const auto* c = static_cast<const char*>(g.c);
    const int64_t rows = min(kTileRows, g.m - row_begin);
    for (int64_t i = 0; i < rows; ++i) {
      const char* at = c + ((row_begin + i) * g.n + column) * sizeof(Out);
      for (int byte = 0; byte < kPanel<T> * static_cast<int>(sizeof(Out)); byte += 64) __builtin_prefetch(at + byte, 1);
    }
  }

  void tile(T* __restrict__ sums, int64_t row_begin, int64_t column) const {
    const int64_t rows = min(kTileRows, g.m - row_begin), width = min(kPanel<T>, g.n - column);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = (row_begin + i) * g.n + column;
      if (width == kPanel<T>)
        row(sums + i * kPanel<T>, at, column, kPanel<T>);
      else
        row(sums + i * kPanel<T>, at, column, width);
    }
  }
};

// Rows [row, row + rows) times panels [panel_begin, panel_end), terms [begin, begin + depth).
template <bool kTransposed, class In, class Out, class T>
void block(const Gemm& g, const T* packed_b, int64_t row, int64_t rows, int64_t panel_begin, int64_t panel_end,
           int64_t begin, int64_t depth, const Epilogue<Out, T>& epilogue) {
  constexpr int64_t kTileSize = kTileRows * kRowStep;
  // Not ceil_div: GCC 12 would give the loops below other registers, and more moves between them.
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  auto* packed_a = static_cast<T*>(scratch(Scratch::gemm_a, kBlockTiles * kTileSize * sizeof(T)));
  pack_a<kTransposed, In>(g, row, rows, begin, depth, packed_a);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      epilogue.prefetch(row + tile * kTileRows, panel * kPanel<T>);
      alignas(64) T sums[kTileRows * kPanel<T>];
      {
        Tile<T, kTileRows, kTileVectors> c;
        c.clear();
        c.template multiply<kTransposed ? 1 : kRowStep, kTransposed ? kTileRows : 1, kPanel<T>>(
            packed_a + tile * kTileSize, packed_b + panel * depth * kPanel<T>, depth);
        c.template store_to<kPanel<T>>(sums);
      }
      epilogue.tile(sums, row + tile * kTileRows, panel * kPanel<T>);
    }
  }
}

template <class In, class Out>
void multiply(const Gemm& g) {
  using T = accumulator_t<In>;
  const int64_t panels = ceil_div(g.n, kPanel<T>), tiles = ceil_div(g.m, kTileRows);
  const int64_t chunks = ceil_div(g.k, kGemmDepth);
  const int64_t max_depth = min(kGemmDepth, round_up(ceil_div(g.k, chunks), 8));
  auto* packed_b = static_cast<T*>(scratch(Scratch::gemm_b, panels * kPanel<T> * max_depth * sizeof(T)));
  T* partial = nullptr;
  if constexpr (sizeof(Out) == sizeof(T))
    partial = static_cast<T*>(g.c);
  else if (chunks > 1)
    partial = static_cast<T*>(scratch(Scratch::gemm_partial, g.m * g.n * sizeof(T)));

  // Rows are dealt to the threads in blocks of up to kBlockTiles tiles; when there are too few rows, columns are too.
  const int64_t threads = omp_get_max_threads();
  const int64_t rounds = ceil_div(tiles, kBlockTiles * threads);
  const int64_t block_tiles = ceil_div(tiles, rounds * threads);
  const int64_t row_blocks = ceil_div(tiles, block_tiles);
  const int64_t column_blocks = row_blocks >= threads ? 1 : min(panels, ceil_div(threads, row_blocks));
  const int64_t tasks = row_blocks * column_blocks;

  for (int64_t begin = 0; begin < g.k; begin += max_depth) {
    const int64_t depth = min(max_depth, g.k - begin);
    parallel_for(panels, kSerialFlops / (kPanel<T> * depth) + 1, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p)
        pack_b<In>(g, p * kPanel<T>, begin, depth, packed_b + p * depth * kPanel<T>);
    });
    const Epilogue<Out, T> epilogue{g, partial, begin == 0, begin + depth == g.k};
    const int64_t task_flops = 2 * g.m * g.n * depth / tasks;
    parallel_for(tasks, kSerialFlops / (task_flops + 1) + 1, [&](int64_t first, int64_t last) {
      for (int64_t task = first; task < last; ++task) {
        const int64_t row = task / column_blocks * block_tiles * kTileRows, part = task % column_blocks;
        const int64_t rows = min(block_tiles * kTileRows, g.m - row);
        const int64_t panel_begin = panels * part / column_blocks, panel_end = panels * (part + 1) / column_blocks;
        if (g.transpose_a)
          block<true, In>(g, packed_b, row, rows, panel_begin, panel_end, begin, depth, epilogue);
        else
          block<false, In>(g, packed_b, row, rows, panel_begin, panel_end, begin, depth, epilogue);
      }
    });
  }
}

}  // namespace

void gemm_packed(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  visit_floating(g.in_dtype, [&]<class In>(Type<In>) {
    if (g.out_dtype == g.in_dtype)
      multiply<In, In>(g);
    else
      multiply<In, float>(g);
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(gemm_packed, Gemm)
