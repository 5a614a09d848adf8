// The position of a block of a tensor in the whole tensor. Ranks that train one model together hold blocks of the
// tensors that a single rank would hold. A random mask is keyed by the element of the whole (of the global batch), so
// that it does not depend on the number of ranks. By default the block is the whole.
//
//   samples   rank r of R holds samples r, r + R, r + 2R, ... of a batch
//   tokens    a band [first, first + count) of the `total` tokens of each sample, which may have a gap
//   heads, columns   a range of them
//   rows      of a matrix [B·T, C], B samples of T tokens each: a range of the rows, in order, see RowWindow
#pragma once

#include <cstdint>

#include "kernels/common/dtype.h"

namespace isobar {

// Always inline, see kernels/common/math.h.
#define ISOBAR_WINDOW_FUNCTION ISOBAR_HD inline __attribute__((always_inline)) constexpr

// Indices [first, first + count) of one dimension, whose size in the whole is `total`. The kernel's arguments give the
// count. total 0: the block is the whole.
struct Span {
  std::int64_t first = 0, total = 0;
};

// Sample b of the block is sample first + b·step of the global batch.
struct SampleWindow {
  std::int64_t first = 0, step = 1;

  ISOBAR_WINDOW_FUNCTION std::int64_t at(std::int64_t b) const { return first + b * step; }
};

// A contiguous range of the rows of [B·tokens, C]: B samples of `tokens` tokens each, which are a band of the tokens of
// whole samples. The range may begin and end within a sample: `before` rows of the matrix come before it. By default a
// sample has one token, so a row is a sample.
struct RowWindow {
  std::int64_t before = 0;
  std::int64_t tokens = 1;
  SampleWindow samples = {};
  Span band = {};  // of a sample's tokens
  // Tokens from the gap_at-th of the band on lie `gap` further on in the sample than those before them would lead to.
  std::int64_t gap_at = 0, gap = 0;

  // For row `row` of the range: its sample and its token in [B, tokens].
  ISOBAR_WINDOW_FUNCTION std::int64_t sample_of(std::int64_t row) const { return (before + row) / tokens; }
  ISOBAR_WINDOW_FUNCTION std::int64_t token_of(std::int64_t row) const { return (before + row) % tokens; }
  // The row of the whole matrix with this token of this sample. band.total must be set.
  ISOBAR_WINDOW_FUNCTION std::int64_t row_at(std::int64_t sample, std::int64_t token) const {
    return samples.at(sample) * band.total + band.first + token + (token >= gap_at ? gap : 0);
  }
};

// Elements of a matrix: some of its rows, and their columns [columns.first, columns.first + cols). cols 0: the block is
// the whole, of any shape.
struct ElementWindow {
  std::int64_t cols = 0;
  Span columns = {};
  RowWindow rows = {};

  // Element (row, 0) of the block as an element of the whole. The totals must be set.
  ISOBAR_WINDOW_FUNCTION std::int64_t row_begin(std::int64_t sample, std::int64_t token) const {
    return rows.row_at(sample, token) * columns.total + columns.first;
  }
};

// These set totals that are 0, and throw an Error with the kernel's name if the block does not lie in the whole.
Span checked_window(const char* kernel, const char* dimension, const Span& span, std::int64_t count);
SampleWindow checked_window(const char* kernel, const SampleWindow& samples);
RowWindow checked_window(const char* kernel, const RowWindow& rows);
// For a block of n elements. cols is 0 if the elements of the block are those of the whole, in the same order.
ElementWindow checked_window(const char* kernel, const ElementWindow& window, std::int64_t n);

#undef ISOBAR_WINDOW_FUNCTION

}  // namespace isobar
