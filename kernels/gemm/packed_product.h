// The blocked matrix product on the CPU, C[i, j] = Σ_k A[i, k]·B[k, j]: computed tile by tile in registers
// (kernels/cpu/simd.h) from packed panels of A and B. gemm packs matrices; a convolution gathers.
// Only for files compiled once an instruction set (kernels/cpu/isa.h).
//
// multiply() below asks three things of its caller, for a Format that is Single<T> or InPairs:
//
//   A         kTransposed; pack(row, rows, depth, packed): rows [row, row + rows), terms of `depth`, zeros up to whole
//             tiles. A tile of the packed A is [kTileRows, kRowStep] if the terms of a row are contiguous in
//             memory, and [elements, kTileRows], kTransposed, if the rows are: in both cases packing copies runs
//   B         pack(column, depth, packed): columns [column, column + kPanel), terms of `depth`, as [elements, kPanel],
//             zeros beyond the last column
//   Epilogue  row(sums, row, column, width): the operations on the sums of one row of a tile. Its `first` and `last`
//             say whether these are the first and the last terms of the sums
//             prefetch(row, column): prefetches the lines of C for a tile, so that they arrive while it is computed
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/common/math.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/transpose.h"
#include "kernels/gemm/packed.h"

namespace isobar::cpu::ISOBAR_ISA {

using std::int64_t;

inline constexpr int64_t kSerialFlops = 200'000;  // less work is not worth a second thread
// Tiles of rows whose A is packed at a time; they share the L2 cache with B.
inline constexpr int64_t kBlockTiles = 14;

// A product of few rows keeps its whole A packed in the second-level cache, up to so many passes over its terms.
inline constexpr int64_t kFewRowsPasses = 16;

// The packed B is of at most so many bytes: it stays in the last cache while all rows are multiplied with it, and the
// product with the table of a vocabulary needs no copy of that table.
inline constexpr int64_t kPackedBytes = int64_t{16} << 20;

// The step between rows of the packed A. Not a power of two: all rows of a tile would fall into a few cache sets.
inline constexpr int kRowStep = kGemmDepth + 16;

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
  // The same from put(to), which writes `terms` terms side by side, of type Term.
  using Term = Packed;
  template <class Put>
  static ISOBAR_INLINE void pack_gathered(const Put& put, int64_t, Packed* to) {
    put(to);
  }
  static ISOBAR_INLINE Packed pack_one(const In* from, int64_t) { return static_cast<Packed>(*from); }
  // c += a·b, lane by lane.
  static ISOBAR_INLINE void add(Vector<Sum>& c, Vector<Packed> a, Vector<Packed> b) { c += a * b; }
  // A vector of elements whose terms are contiguous.
  static ISOBAR_INLINE Vector<Packed> load_along(const In* from) {
    alignas(kVectorBytes) Packed elements[kLanes<Packed>];
    convert_fixed<kLanes<Packed>>(from, elements);
    return load(elements);
  }
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
  using Term = In;
  template <class Put>
  static ISOBAR_INLINE void pack_gathered(const Put& put, int64_t terms, Packed* to) {
    if (terms % 2 == 1) to[terms / 2] = 0;
    put(reinterpret_cast<In*>(to));
  }
  static ISOBAR_INLINE void add(Vector<Sum>& c, Vector<Packed> a, Vector<Packed> b) { Products::add(c, a, b); }
  static ISOBAR_INLINE Packed pack_one(const In* from, int64_t terms_left) {
    if (terms_left == 1) return bits_of(*from);
    Packed pair;
    __builtin_memcpy(&pair, from, sizeof pair);
    return pair;
  }
  static ISOBAR_INLINE Vector<Packed> load_along(const In* from) {
    Vector<Packed> pairs;
    __builtin_memcpy(&pairs, from, sizeof pairs);
    return pairs;
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

// One row of a panel: `width` elements side by side and zeros up to kPanel; further terms of each lie `step` beyond.
template <class Format>
ISOBAR_INLINE void pack_row(const typename Format::In* __restrict__ from, int64_t step, int64_t terms_left,
                            int64_t width, typename Format::Packed* __restrict__ to) {
  constexpr int64_t kWidth = kPanel<typename Format::Sum>;
  if (width == kWidth) {
    Format::template pack_across<kWidth>(from, step, terms_left, to);
  } else {
    Format::pack_across(from, step, terms_left, width, to);
    for (int64_t j = width; j < kWidth; ++j) to[j] = typename Format::Packed{0};
  }
}

// A matrix that A is: [m, k], or stored [k, m]. `step` is from one row in memory to the next.
template <class Format, bool kTransposed_>
struct MatrixA {
  using In = typename Format::In;
  using T = typename Format::Packed;
  static constexpr bool kTransposed = kTransposed_;

  const In* a;
  int64_t step;

  void pack(int64_t row, int64_t rows, const Depth& depth, T* __restrict__ packed) const {
    constexpr int64_t kTileSize = kTileRows * kRowStep;
    if constexpr (kTransposed) {
      for (int64_t k = 0; k < depth.elements; ++k) {
        const int64_t term = k * Format::kTerms, left = depth.terms - term;
        const In* from = a + (depth.begin + term) * step + row;
        for (int64_t i = 0; i < rows; i += kTileRows) {
          T* to = packed + i / kTileRows * kTileSize + k * kTileRows;
          if (rows - i >= kTileRows) {
            Format::template pack_across<kTileRows>(from + i, step, left, to);
          } else {
            Format::pack_across(from + i, step, left, rows - i, to);
            for (int64_t j = rows - i; j < kTileRows; ++j) to[j] = T{0};
          }
        }
      }
    } else {
      for (int64_t i = 0; i < round_up(rows, kTileRows); ++i) {
        T* to = packed + i * kRowStep;
        if (i < rows) {
          Format::pack_along(a + (row + i) * step + depth.begin, depth.elements, depth.terms, to);
        } else {
          for (int64_t k = 0; k < depth.elements; ++k) to[k] = T{0};
        }
      }
    }
  }
};

// A matrix that B is: [k, n], or stored [n, k]. `step` is from one row in memory to the next.
template <class Format>
struct MatrixB {
  using In = typename Format::In;
  using T = typename Format::Packed;
  static constexpr int64_t kWidth = kPanel<typename Format::Sum>;

  const In* b;
  int64_t n, step;
  bool transposed;

  void pack(int64_t column, const Depth& depth, T* __restrict__ packed) const {
    const int64_t width = min(kWidth, n - column);
    if (transposed) {
      constexpr int64_t kSide = kLanes<T>;
      static_assert(kWidth % kSide == 0);
      const int64_t whole = depth.terms / Format::kTerms / kSide * kSide;  // elements in whole squares
      for (int64_t k = 0; k < depth.elements; k += kSide)
        for (int64_t j = 0; j < kWidth; j += kSide) {
          const int64_t elements = min(kSide, depth.elements - k), columns = min(kSide, width - j);
          const In* from = b + (column + j) * step + depth.begin + k * Format::kTerms;
          if (k < whole && columns == kSide)
            pack_square(from, packed + k * kWidth + j);
          else
            pack_part_of_square(from, elements, columns, depth.terms - k * Format::kTerms, packed + k * kWidth + j);
        }
    } else {
      for (int64_t k = 0; k < depth.elements; ++k) {
        const int64_t term = k * Format::kTerms;
        pack_row<Format>(b + (depth.begin + term) * step + column, step, depth.terms - term, width,
                         packed + k * kWidth);
      }
    }
  }

 private:
  // kLanes elements of as many columns, whose terms are contiguous in memory.
  ISOBAR_INLINE void pack_square(const In* __restrict__ from, T* __restrict__ to) const {
    Vector<T> square[kLanes<T>];
#pragma GCC unroll 16
    for (int j = 0; j < kLanes<T>; ++j) square[j] = Format::load_along(from + j * step);
    transpose_square(square);
#pragma GCC unroll 16
    for (int k = 0; k < kLanes<T>; ++k) store(to + k * kWidth, square[k]);
  }
  // The same at the edges: `columns` may be 0 or less. Zeros up to a whole square of columns.
  void pack_part_of_square(const In* __restrict__ from, int64_t elements, int64_t columns, int64_t terms_left,
                           T* __restrict__ to) const {
    for (int64_t k = 0; k < elements; ++k)
      for (int64_t j = 0; j < kLanes<T>; ++j)
        to[k * kWidth + j] =
            j < columns ? Format::pack_one(from + j * step + k * Format::kTerms, terms_left - k * Format::kTerms)
                        : T{0};
  }
};

// The sums of one tile, row by row. `width` is a constant for all but the last columns, so that what is done with a row
// is straight vector code.
template <class T, class Epilogue>
void finish_tile(const Epilogue& epilogue, T* __restrict__ sums, int64_t row, int64_t column, int64_t m, int64_t n) {
  const int64_t rows = min(kTileRows, m - row), width = min(kPanel<T>, n - column);
  for (int64_t i = 0; i < rows; ++i) {
    if (width == kPanel<T>)
      epilogue.row(sums + i * kPanel<T>, row + i, column, kPanel<T>);
    else
      epilogue.row(sums + i * kPanel<T>, row + i, column, width);
  }
}

// The sums of a tile of kRows rows of a packed A and a packed panel of B, [kRows, kPanel].
template <class Format, int kRows, bool kTransposedA>
ISOBAR_INLINE void multiply_tile(const typename Format::Packed* packed_a, const typename Format::Packed* panel,
                                 int64_t elements, typename Format::Sum* sums) {
  using T = typename Format::Sum;
  Tile<T, kRows, kTileVectors> c;
  c.clear();
  Format::template multiply<kTransposedA ? 1 : kRowStep, kTransposedA ? kTileRows : 1, kPanel<T>>(c, packed_a, panel,
                                                                                                  elements);
  c.template store_to<kPanel<T>>(sums);
}

// The size of a product.
struct Extents {
  int64_t m, n, k;
};

// Panels [first, end) of B.
struct Panels {
  int64_t first, end;
  int64_t count() const { return end - first; }
};

// Rows [row, row + rows) times panels, packed one after another, terms of `depth`.
template <class Format, class A, class Epilogue>
void block(const A& a, const Extents& e, const typename Format::Packed* packed_b, int64_t row, int64_t rows,
           const Panels& panels, const Depth& depth, const Epilogue& epilogue) {
  using T = typename Format::Sum;
  using Packed = typename Format::Packed;
  constexpr int64_t kTileSize = kTileRows * kRowStep;
  // Not ceil_div: with it GCC 12 allocates registers worse in the loops below.
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  auto* packed_a = static_cast<Packed*>(scratch(Scratch::gemm_a, kBlockTiles * kTileSize * sizeof(Packed)));
  a.pack(row, rows, depth, packed_a);
  for (int64_t panel = panels.first; panel < panels.end; ++panel, packed_b += depth.elements * kPanel<T>) {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      epilogue.prefetch(row + tile * kTileRows, panel * kPanel<T>);
      alignas(64) T sums[kTileRows * kPanel<T>];
      multiply_tile<Format, kTileRows, A::kTransposed>(packed_a + tile * kTileSize, packed_b, depth.elements, sums);
      finish_tile(epilogue, sums, row + tile * kTileRows, panel * kPanel<T>, e.m, e.n);
    }
  }
}

// The passes over C that a product's terms take.
template <class Format>
int64_t passes_of(int64_t k) {
  return ceil_div(ceil_div(k, Format::kTerms), kGemmDepth);
}

// The packed elements of a pass, at most.
template <class Format>
int64_t elements_of_pass(int64_t k) {
  return min(kGemmDepth, round_up(ceil_div(ceil_div(k, Format::kTerms), passes_of<Format>(k)), 8));
}

// The terms of a pass over k of them.
template <class Format>
Depth depth_of_pass(int64_t pass, int64_t k) {
  const int64_t most = elements_of_pass<Format>(k) * Format::kTerms, begin = pass * most, terms = min(most, k - begin);
  return {begin, terms, ceil_div(terms, Format::kTerms)};
}

// The product of the rows of one tile, kRows of them. Here a packed B would be used once: each thread packs a panel
// just before it multiplies with it, so that B goes through the memory once and its packed panels stay in the cache.
// The sums are those of multiply() below, to the bit.
template <class Format, int kRows, class A, class B, class Epilogue>
void multiply_few_rows(const A& a, const B& b, const Epilogue& epilogue, const Extents& e) {
  using T = typename Format::Sum;
  using Packed = typename Format::Packed;
  constexpr int64_t kTileSize = kTileRows * kRowStep;
  const int64_t passes = passes_of<Format>(e.k), max_elements = elements_of_pass<Format>(e.k);
  auto* packed_a = static_cast<Packed*>(scratch(Scratch::gemm_a, passes * kTileSize * sizeof(Packed)));
  for (int64_t pass = 0; pass < passes; ++pass)
    a.pack(0, e.m, depth_of_pass<Format>(pass, e.k), packed_a + pass * kTileSize);
  parallel_for(ceil_div(e.n, kPanel<T>), kSerialFlops / (kPanel<T> * e.k) + 1, [&](int64_t first, int64_t last) {
    auto* packed_b = static_cast<Packed*>(scratch(Scratch::gemm_b, kPanel<T> * max_elements * sizeof(Packed)));
    Epilogue of_pass = epilogue;
    for (int64_t panel = first; panel < last; ++panel)
      for (int64_t pass = 0; pass < passes; ++pass) {
        const Depth depth = depth_of_pass<Format>(pass, e.k);
        b.pack(panel * kPanel<T>, depth, packed_b);
        alignas(64) T sums[kRows * kPanel<T>];
        multiply_tile<Format, kRows, A::kTransposed>(packed_a + pass * kTileSize, packed_b, depth.elements, sums);
        of_pass.first = pass == 0;
        of_pass.last = pass + 1 == passes;
        finish_tile(of_pass, sums, 0, panel * kPanel<T>, e.m, e.n);
      }
  });
}

// k >= 1.
template <class Format, class A, class B, class Epilogue>
void multiply(const A& a, const B& b, Epilogue epilogue, const Extents& e) {
  using T = typename Format::Sum;
  using Packed = typename Format::Packed;
  if (e.m <= kTileRows && passes_of<Format>(e.k) <= kFewRowsPasses) {
    if (e.m == 1 && !A::kTransposed) return multiply_few_rows<Format, 1>(a, b, epilogue, e);
    return multiply_few_rows<Format, kTileRows>(a, b, epilogue, e);
  }
  const int64_t panels = ceil_div(e.n, kPanel<T>), tiles = ceil_div(e.m, kTileRows);
  const int64_t max_elements = elements_of_pass<Format>(e.k), passes = passes_of<Format>(e.k);
  const int64_t panel_bytes = kPanel<T> * max_elements * static_cast<int64_t>(sizeof(Packed));
  const int64_t group = min(panels, kPackedBytes / panel_bytes);  // panels that are packed at a time
  auto* packed_b = static_cast<Packed*>(scratch(Scratch::gemm_b, group * panel_bytes));

  // Rows are split among threads in blocks of up to kBlockTiles tiles; if there are too few rows, columns are split
  // too.
  const int64_t threads = omp_get_max_threads();
  const int64_t rounds = ceil_div(tiles, kBlockTiles * threads);
  const int64_t block_tiles = ceil_div(tiles, rounds * threads);
  const int64_t row_blocks = ceil_div(tiles, block_tiles);
  const int64_t column_blocks = row_blocks >= threads ? 1 : min(panels, ceil_div(threads, row_blocks));
  const int64_t tasks = row_blocks * column_blocks;

  const auto multiply_group = [&](const Depth& depth, const Panels& some) {
    const int64_t panel_size = depth.elements * kPanel<T>;
    parallel_for(some.count(), kSerialFlops / (kPanel<T> * depth.terms) + 1, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) b.pack((some.first + p) * kPanel<T>, depth, packed_b + p * panel_size);
    });
    const int64_t task_flops = 2 * e.m * min(e.n, some.count() * kPanel<T>) * depth.terms / tasks;
    parallel_for(tasks, kSerialFlops / (task_flops + 1) + 1, [&](int64_t first, int64_t last) {
      for (int64_t task = first; task < last; ++task) {
        const int64_t row = task / column_blocks * block_tiles * kTileRows, part = task % column_blocks;
        const int64_t rows = min(block_tiles * kTileRows, e.m - row);
        const int64_t begin = some.count() * part / column_blocks, end = some.count() * (part + 1) / column_blocks;
        block<Format>(a, e, packed_b + begin * panel_size, row, rows, {some.first + begin, some.first + end}, depth,
                      epilogue);
      }
    });
  };
  for (int64_t pass = 0; pass < passes; ++pass) {
    epilogue.first = pass == 0;
    epilogue.last = pass + 1 == passes;
    for (int64_t first = 0; first < panels; first += group)
      multiply_group(depth_of_pass<Format>(pass, e.k), {first, min(first + group, panels)});
  }
}

}  // namespace isobar::cpu::ISOBAR_ISA
