// Where a block of a tensor lies in the whole one. Ranks that train one model together hold blocks of the tensors that
// one rank alone would hold. A random mask is keyed by the element of the whole (of the global batch), so that it does
// not depend on how many ranks share the work; the default of everything here is a block that is the whole.
//
//   samples   rank r of R holds samples r, r + R, r + 2R, ... of a batch
//   tokens    a band [first, first + count) of each sample's `total` tokens
//   heads, columns   a range of them
//   rows      of a matrix [B·T, C], B samples of T tokens each: some of the rows, in their order, see RowWindow
#pragma once

#include <cstdint>

#include "kernels/common/dtype.h"

namespace isobar {

// Always inline, as kernels/common/math.h tells why.
#define ISOBAR_WINDOW_FUNCTION ISOBAR_HD inline __attribute__((always_inline)) constexpr

// Indices [first, first + count) of one dimension, whose size in the whole is `total`. The kernel's arguments know the
// count. total 0: the block has all of them.
struct Span {
  std::int64_t first = 0, total = 0;
};

// Sample b of the block is sample first + b·step of the global batch.
struct SampleWindow {
  std::int64_t first = 0, step = 1;

  ISOBAR_WINDOW_FUNCTION std::int64_t at(std::int64_t b) const { return first + b * step; }
};

// A contiguous range of the rows of [B·tokens, C], where B samples have `tokens` tokens each, which are themselves a
// band of the tokens of whole samples. The range need not begin or end with a sample: `before` rows of the matrix come
// before it. With one token a sample, the default, a row is a sample.
struct RowWindow {
  std::int64_t before = 0;
  std::int64_t tokens = 1;
  SampleWindow samples = {};
  Span band = {};  // of a sample's tokens

  // Of row `row` of the range: the sample and the token within [B, tokens].
  ISOBAR_WINDOW_FUNCTION std::int64_t sample_of(std::int64_t row) const { return (before + row) / tokens; }
  ISOBAR_WINDOW_FUNCTION std::int64_t token_of(std::int64_t row) const { return (before + row) % tokens; }
  // The row of the whole matrix that holds that token of that sample; once band.total is known.
  ISOBAR_WINDOW_FUNCTION std::int64_t row_at(std::int64_t sample, std::int64_t token) const {
    return samples.at(sample) * band.total + band.first + token;
  }
};

// Elements of a matrix: some rows of it, and of these the columns [columns.first, columns.first + cols). cols 0: the
// block is the whole, of whatever shape.
struct ElementWindow {
  std::int64_t cols = 0;
  Span columns = {};
  RowWindow rows = {};

  // Element (row, 0) of the block as an element of the whole; once the totals are known.
  ISOBAR_WINDOW_FUNCTION std::int64_t row_begin(std::int64_t sample, std::int64_t token) const {
    return rows.row_at(sample, token) * columns.total + columns.first;
  }
};

// These fill in the totals that are 0, and throw an Error naming the kernel where the block does not lie in the whole.
Span checked_window(const char* kernel, const char* dimension, const Span& span, std::int64_t count);
SampleWindow checked_window(const char* kernel, const SampleWindow& samples);
RowWindow checked_window(const char* kernel, const RowWindow& rows);
// Of a block of n elements. Where the elements of the block are those of the whole, in their order, cols is 0.
ElementWindow checked_window(const char* kernel, const ElementWindow& window, std::int64_t n);

#undef ISOBAR_WINDOW_FUNCTION

}  // namespace isobar
