// The product of few rows with a transposed B, C[i, j] = Σ_k A[i, k]·B[j, k], as scalar products of rows: what a
// language model computes for each token that it writes. B is read once, in the order of memory and as it lies there:
// the product takes the time of that reading. Panels would have to be transposed first (packed_product.h), which takes
// longer than the multiplication, and reads many rows of B in turn.
// Only for files compiled once an instruction set (kernels/cpu/isa.h).
//
// A sum is made in kLanes parts, of every kLanes-th term; a tree adds up the parts. So a row has the same bits whatever
// the other rows are, and however many, up to kFewRows.
#pragma once

#include "kernels/gemm/few_rows.h"
#include "kernels/gemm/packed_product.h"

namespace isobar::cpu::ISOBAR_ISA {

template <class T>
ISOBAR_INLINE T sum_of_lanes(Vector<T> v) {
  alignas(kVectorBytes) T parts[kLanes<T>];
  store(parts, v);
#pragma GCC unroll 8
  for (int half = kLanes<T> / 2; half > 0; half /= 2)
#pragma GCC unroll 16
    for (int i = 0; i < half; ++i) parts[i] += parts[i + half];
  return parts[0];
}

// A [m, k] and B [n, k] of a product, in packed elements: one term each, or two.
template <class Format>
struct Dots {
  using In = typename Format::In;
  using T = typename Format::Sum;
  using Packed = typename Format::Packed;
  static constexpr int64_t kLanesOfB = kLanes<Packed>;

  const In* b;
  int64_t m, n, k;
  int64_t elements = ceil_div(k, Format::kTerms), step = round_up(elements, kLanesOfB);  // of a row of the packed A
  const Packed* a = nullptr;  // [m, step], zeros behind the elements

  void pack(const In* from) {
    auto* to = static_cast<Packed*>(scratch(Scratch::gemm_a, static_cast<std::size_t>(m * step) * sizeof(Packed)));
    for (int64_t i = 0; i < m; ++i) {
      Format::pack_along(from + i * k, elements, k, to + i * step);
      for (int64_t e = elements; e < step; ++e) to[i * step + e] = Packed{0};
    }
    a = to;
  }

  // Rows [row, row + kRows) with columns [column, column + kTileVectors) of C; those beyond the last repeat it. `sums`
  // are those of `column` in the first of the rows, which are kPanel apart.
  template <int kRows>
  ISOBAR_INLINE void multiply(int64_t row, int64_t column, T* sums) const {
    const Packed* rows[kRows];
    const In* columns[kTileVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) rows[i] = a + min(row + i, m - 1) * step;
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) columns[j] = b + min(column + j, n - 1) * k;
    Vector<T> c[kRows][kTileVectors] = {};
    const auto add = [&](int64_t e, const Vector<Packed>* of_columns) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vector<Packed> of_row = load(rows[i] + e);
#pragma GCC unroll 4
        for (int j = 0; j < kTileVectors; ++j) Format::add(c[i][j], of_row, of_columns[j]);
      }
    };
    // Whole vectors of the terms of B: a pair may lack its second one.
    const int64_t whole = k / Format::kTerms / kLanesOfB * kLanesOfB;
    for (int64_t e = 0; e < whole; e += kLanesOfB) {
      Vector<Packed> of_columns[kTileVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kTileVectors; ++j) {
        const In* at = columns[j] + e * Format::kTerms;
        __builtin_prefetch(at + kTileVectors * k);  // the same of the next columns
        of_columns[j] = Format::load_along(at);
      }
      add(e, of_columns);
    }
    if (whole < elements) {
      Vector<Packed> of_columns[kTileVectors];
      for (int j = 0; j < kTileVectors; ++j) {
        alignas(kVectorBytes) Packed last[kLanesOfB] = {};
        const int64_t term = whole * Format::kTerms;
        Format::pack_along(columns[j] + term, elements - whole, k - term, last);
        of_columns[j] = load(last);
      }
      add(whole, of_columns);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kTileVectors; ++j) sums[i * kPanel<T> + j] = sum_of_lanes<T>(c[i][j]);
  }

  // The same of all columns of a panel that exist.
  template <int kRows>
  void multiply_panel(int64_t row, int64_t column, T* sums) const {
    const int64_t width = min(kPanel<T>, n - column);
    for (int64_t j = 0; j < width; j += kTileVectors) multiply<kRows>(row, column + j, sums + j);
  }
};

// C = A·Bᵀ for m <= kFewRows rows; A [m, k] and B [n, k]. Epilogue: as in packed_product.h.
template <class Format, class Epilogue>
void multiply_dots(const typename Format::In* a, const typename Format::In* b, const Epilogue& epilogue,
                   const Extents& e) {
  using T = typename Format::Sum;
  Dots<Format> dots{.b = b, .m = e.m, .n = e.n, .k = e.k};
  dots.pack(a);
  parallel_for(ceil_div(e.n, kPanel<T>), kSerialFlops / (kPanel<T> * e.k) + 1, [&](int64_t first, int64_t last) {
    for (int64_t panel = first; panel < last; ++panel) {
      const int64_t column = panel * kPanel<T>;
      for (int64_t row = 0; row < e.m; row += kTileRows) {
        alignas(64) T sums[kTileRows * kPanel<T>];
        const int64_t rows = min(kTileRows, e.m - row);
        if (rows == 1)
          dots.template multiply_panel<1>(row, column, sums);
        else if (rows == 2)
          dots.template multiply_panel<2>(row, column, sums);
        else if (rows <= 4)
          dots.template multiply_panel<4>(row, column, sums);
        else
          dots.template multiply_panel<kTileRows>(row, column, sums);
        finish_tile(epilogue, sums, row, column, e.m, e.n);
      }
    }
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA
