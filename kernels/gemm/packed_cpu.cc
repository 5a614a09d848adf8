#include "kernels/gemm/packed.h"

#include <cstdint>
#include <type_traits>

#include "kernels/common/math.h"
#include "kernels/cpu/gelu_gate.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

using std::int64_t;

constexpr int64_t kSerialFlops = 200'000;  // less work is not worth a second thread
// Tiles of rows whose A is packed at a time; they share the L2 cache with B.
constexpr int64_t kBlockTiles = 14;

// The step between rows of the packed A. Not a power of two: all rows of a tile would fall into a few cache sets.
constexpr int kRowStep = kGemmDepth + 16;

template <class In, class T>
ISOBAR_INLINE void convert_run(const In* __restrict__ from, T* __restrict__ to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = convert<T>(from[i]);
}

// The same for a constant number of elements: inline for all types.
template <int kCount, class In, class T>
ISOBAR_INLINE void convert_fixed(const In* __restrict__ from, T* __restrict__ to) {
  if constexpr (std::is_same_v<In, T>) {
    __builtin_memcpy(to, from, kCount * sizeof(T));
  } else {
#pragma omp simd
    for (int i = 0; i < kCount; ++i) to[i] = convert<T>(from[i]);
  }
}

// Packing and multiplication of single terms, converted to the type of the sums.
template <class In_>
struct Single {
  using In = In_;
  using Sum = accumulator_t<In>;
  using Packed = Sum;  // an element of a packed panel
  static constexpr int kTerms = 1;

  // Packs `count` elements whose terms are contiguous.
  static ISOBAR_INLINE void pack_along(const In* __restrict__ from, int64_t count, int64_t, Packed* __restrict__ to) {
    convert_run(from, to, count);
  }
  static ISOBAR_INLINE Packed pack_one(const In* from, int64_t) { return static_cast<Packed>(*from); }
  // Packs `count` contiguous elements; further terms of each would be at distance `step`.
  static ISOBAR_INLINE void pack_across(const In* __restrict__ from, int64_t, int64_t, int64_t count,
                                        Packed* __restrict__ to) {
    convert_run(from, to, count);
  }
  template <int kCount>
  static ISOBAR_INLINE void pack_across(const In* __restrict__ from, int64_t, int64_t, Packed* __restrict__ to) {
    convert_fixed<kCount>(from, to);
  }

  template <int kRowStep, int kStep, int kBStep, class SumTile>
  static ISOBAR_INLINE void multiply(SumTile& tile, const Packed* a, const Packed* b, int64_t count) {
    tile.template multiply<kRowStep, kStep, kBStep>(a, b, count);
  }
};

#if defined(ISOBAR_ISA_IS_avx512)
// Two terms an element, as vdpbf16ps reads them (kernels/cpu/pairs.h). If only one is left, `terms` or `terms_left`
// says so, and the other is zero.
template <class Products>
struct InPairs {
  using In = bf16;
  using Sum = float;
  using Packed = std::uint32_t;
  static constexpr int kTerms = 2;

  static ISOBAR_INLINE void pack_along(const In* __restrict__ from, int64_t count, int64_t terms,
                                       Packed* __restrict__ to) {
    const int64_t whole = terms / 2;
    __builtin_memcpy(to, from, static_cast<std::size_t>(whole) * sizeof(Packed));
    if (whole < count) to[whole] = bits_of(from[terms - 1]);
  }
  static ISOBAR_INLINE Packed pack_one(const In* from, int64_t terms_left) {
    if (terms_left == 1) return bits_of(*from);
    Packed pair;
    __builtin_memcpy(&pair, from, sizeof pair);
    return pair;
  }
  static ISOBAR_INLINE void pack_across(const In* __restrict__ from, int64_t step, int64_t terms_left, int64_t count,
                                        Packed* __restrict__ to) {
    if (terms_left == 1) {
      for (int64_t i = 0; i < count; ++i) to[i] = bits_of(from[i]);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) to[i] = bits_of(from[i]) | bits_of(from[step + i]) << 16;
    }
  }
  template <int kCount>
  static ISOBAR_INLINE void pack_across(const In* __restrict__ from, int64_t step, int64_t terms_left,
                                        Packed* __restrict__ to) {
    static_assert(kCount % 8 == 0);
    if (terms_left == 1) return pack_across(from, step, terms_left, kCount, to);
    typedef std::uint16_t Eight __attribute__((vector_size(16)));
    for (int i = 0; i < kCount; i += 8, to += 8) {
      Eight even, odd;
      __builtin_memcpy(&even, from + i, sizeof even);
      __builtin_memcpy(&odd, from + step + i, sizeof odd);
      const Eight low = __builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11);
      const Eight high = __builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15);
      __builtin_memcpy(to, &low, sizeof low);
      __builtin_memcpy(to + 4, &high, sizeof high);
    }
  }

  template <int kRowStep, int kStep, int kBStep, class SumTile>
  static ISOBAR_INLINE void multiply(SumTile& tile, const Packed* a, const Packed* b, int64_t count) {
    multiply_pairs<Products>(tile, a, kRowStep, kStep, b, kBStep, count);
  }

 private:
  static ISOBAR_INLINE Packed bits_of(bf16 x) {
    return __builtin_bit_cast(std::uint16_t, x);
  }
};
#endif

// The terms in a run of packed elements.
struct Depth {
  int64_t begin, terms, elements;
};

// Rows [row, row + rows) of op(A), terms of `depth`. A tile of the packed A is [kTileRows, kRowStep] if rows are
// contiguous in memory, and [elements, kTileRows] if columns are: in both cases packing copies runs.
template <bool kTransposed, class Format>
void pack_a(const GemmArgs& g, int64_t row, int64_t rows, const Depth& depth,
            typename Format::Packed* __restrict__ packed) {
  using In = typename Format::In;
  using T = typename Format::Packed;
  const auto* a = static_cast<const In*>(g.a);
  constexpr int64_t kTileSize = kTileRows * kRowStep;
  if constexpr (kTransposed) {
    for (int64_t k = 0; k < depth.elements; ++k) {
      const int64_t term = k * Format::kTerms, left = depth.terms - term;
      const In* from = a + (depth.begin + term) * g.m + row;
      for (int64_t i = 0; i < rows; i += kTileRows) {
        T* to = packed + i / kTileRows * kTileSize + k * kTileRows;
        if (rows - i >= kTileRows) {
          Format::template pack_across<kTileRows>(from + i, g.m, left, to);
        } else {
          Format::pack_across(from + i, g.m, left, rows - i, to);
          for (int64_t j = rows - i; j < kTileRows; ++j) to[j] = T{0};
        }
      }
    }
  } else {
    for (int64_t i = 0; i < round_up(rows, kTileRows); ++i) {
      T* to = packed + i * kRowStep;
      if (i < rows) {
        Format::pack_along(a + (row + i) * g.k + depth.begin, depth.elements, depth.terms, to);
      } else {
        for (int64_t k = 0; k < depth.elements; ++k) to[k] = T{0};
      }
    }
  }
}

// Columns [column, column + kPanel) of op(B), terms of `depth`, as [elements, kPanel]; zeros past n.
template <class Format>
void pack_b(const GemmArgs& g, int64_t column, const Depth& depth, typename Format::Packed* __restrict__ packed) {
  using In = typename Format::In;
  using T = typename Format::Packed;
  constexpr int64_t kWidth = kPanel<typename Format::Sum>;
  const auto* b = static_cast<const In*>(g.b);
  const int64_t width = min(kWidth, g.n - column);
  if (g.transpose_b) {
    // Elements of all columns that stay in the first-level cache while they are transposed.
    constexpr int64_t kRun = 16;
    for (int64_t first = 0; first < depth.elements; first += kRun) {
      const int64_t last = min(first + kRun, depth.elements);
      for (int64_t j = 0; j < kWidth; ++j) {
        if (j < width) {
          const In* from = b + (column + j) * g.k + depth.begin;
          for (int64_t k = first; k < last; ++k)
            packed[k * kWidth + j] = Format::pack_one(from + k * Format::kTerms, depth.terms - k * Format::kTerms);
        } else {
          for (int64_t k = first; k < last; ++k) packed[k * kWidth + j] = T{0};
        }
      }
    }
  } else {
    for (int64_t k = 0; k < depth.elements; ++k) {
      const int64_t term = k * Format::kTerms, left = depth.terms - term;
      const In* from = b + (depth.begin + term) * g.n + column;
      T* to = packed + k * kWidth;
      if (width == kWidth) {
        Format::template pack_across<kWidth>(from, g.n, left, to);
      } else {
        Format::pack_across(from, g.n, left, width, to);
        for (int64_t j = width; j < kWidth; ++j) to[j] = T{0};
      }
    }
  }
}

// The operations on the sums of one tile. Sums over earlier terms are in `partial`, which is C itself if C has the
// accumulator's type.
template <class Out, class T>
struct Epilogue {
  const GemmArgs& g;
  T* partial;
  bool first, last;  // whether these are the first or the last terms of the sums

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

  // Prefetches the lines of C for a tile, so that they arrive while it is computed.
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

// Rows [row, row + rows) times panels [panel_begin, panel_end), terms of `depth`.
template <bool kTransposed, class Format, class Out>
void block(const GemmArgs& g, const typename Format::Packed* packed_b, int64_t row, int64_t rows, int64_t panel_begin,
           int64_t panel_end, const Depth& depth, const Epilogue<Out, typename Format::Sum>& epilogue) {
  using T = typename Format::Sum;
  using Packed = typename Format::Packed;
  constexpr int64_t kTileSize = kTileRows * kRowStep;
  // Not ceil_div: with it GCC 12 allocates registers worse in the loops below.
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  auto* packed_a = static_cast<Packed*>(scratch(Scratch::gemm_a, kBlockTiles * kTileSize * sizeof(Packed)));
  pack_a<kTransposed, Format>(g, row, rows, depth, packed_a);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      epilogue.prefetch(row + tile * kTileRows, panel * kPanel<T>);
      alignas(64) T sums[kTileRows * kPanel<T>];
      {
        Tile<T, kTileRows, kTileVectors> c;
        c.clear();
        Format::template multiply<kTransposed ? 1 : kRowStep, kTransposed ? kTileRows : 1, kPanel<T>>(
            c, packed_a + tile * kTileSize, packed_b + panel * depth.elements * kPanel<T>, depth.elements);
        c.template store_to<kPanel<T>>(sums);
      }
      epilogue.tile(sums, row + tile * kTileRows, panel * kPanel<T>);
    }
  }
}

template <class Format, class Out>
void multiply(const GemmArgs& g) {
  using T = typename Format::Sum;
  using Packed = typename Format::Packed;
  const int64_t panels = ceil_div(g.n, kPanel<T>), tiles = ceil_div(g.m, kTileRows);
  const int64_t elements = ceil_div(g.k, Format::kTerms), chunks = ceil_div(elements, kGemmDepth);
  const int64_t max_elements = min(kGemmDepth, round_up(ceil_div(elements, chunks), 8));
  const int64_t max_terms = max_elements * Format::kTerms;
  auto* packed_b = static_cast<Packed*>(scratch(Scratch::gemm_b, panels * kPanel<T> * max_elements * sizeof(Packed)));
  T* partial = nullptr;
  if constexpr (sizeof(Out) == sizeof(T))
    partial = static_cast<T*>(g.c);
  else if (chunks > 1)
    partial = static_cast<T*>(scratch(Scratch::gemm_partial, g.m * g.n * sizeof(T)));

  // Rows are split among threads in blocks of up to kBlockTiles tiles; if there are too few rows, columns are split
  // too.
  const int64_t threads = omp_get_max_threads();
  const int64_t rounds = ceil_div(tiles, kBlockTiles * threads);
  const int64_t block_tiles = ceil_div(tiles, rounds * threads);
  const int64_t row_blocks = ceil_div(tiles, block_tiles);
  const int64_t column_blocks = row_blocks >= threads ? 1 : min(panels, ceil_div(threads, row_blocks));
  const int64_t tasks = row_blocks * column_blocks;

  for (int64_t begin = 0; begin < g.k; begin += max_terms) {
    const int64_t terms = min(max_terms, g.k - begin);
    const Depth depth{begin, terms, ceil_div(terms, Format::kTerms)};
    parallel_for(panels, kSerialFlops / (kPanel<T> * terms) + 1, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p)
        pack_b<Format>(g, p * kPanel<T>, depth, packed_b + p * depth.elements * kPanel<T>);
    });
    const Epilogue<Out, T> epilogue{g, partial, begin == 0, begin + terms == g.k};
    const int64_t task_flops = 2 * g.m * g.n * terms / tasks;
    parallel_for(tasks, kSerialFlops / (task_flops + 1) + 1, [&](int64_t first, int64_t last) {
      for (int64_t task = first; task < last; ++task) {
        const int64_t row = task / column_blocks * block_tiles * kTileRows, part = task % column_blocks;
        const int64_t rows = min(block_tiles * kTileRows, g.m - row);
        const int64_t panel_begin = panels * part / column_blocks, panel_end = panels * (part + 1) / column_blocks;
        if (g.transpose_a)
          block<true, Format>(g, packed_b, row, rows, panel_begin, panel_end, depth, epilogue);
        else
          block<false, Format>(g, packed_b, row, rows, panel_begin, panel_end, depth, epilogue);
      }
    });
  }
}

#if defined(ISOBAR_ISA_IS_avx512)
template <class Products>
void multiply_pairs_into(const GemmArgs& g) {
  if (g.out_dtype == DType::bf16)
    multiply<InPairs<Products>, bf16>(g);
  else
    multiply<InPairs<Products>, float>(g);
}
#endif

}  // namespace

void gemm_packed(const GemmArgs& g) {
  if (g.m == 0 || g.n == 0) return;
#if defined(ISOBAR_ISA_IS_avx512)
  if (g.in_dtype == DType::bf16 && bf16_products() == Bf16Products::pairs) return multiply_pairs_into<Pairs>(g);
  if (g.in_dtype == DType::bf16 && bf16_products() == Bf16Products::emulated_pairs)
    return multiply_pairs_into<EmulatedPairs>(g);
#endif
  visit_floating(g.in_dtype, [&]<class In>(Type<In>) {
    if (g.out_dtype == g.in_dtype)
      multiply<Single<In>, In>(g);
    else
      multiply<Single<In>, float>(g);
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(gemm_packed, GemmArgs)
