// What the kernels of a convolution on a GPU read and write, as the product [m, k] · [k, n] that each of them is:
// element (i, k) of A, element (k, j) of B, and where row i of the result lies. What a thread finds out once about a
// row or a column is apart from what it finds out for each term.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/conv/window.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/pointwise.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

// Where elements are read, without padding (see below).
class Elements {
 public:
  __host__ __device__ Elements(const Input& from)
      : data_(from.data), dtype_(static_cast<std::uint32_t>(from.dtype)), packed_(from.packed ? 1 : 0) {}

  __device__ __forceinline__ float operator[](std::int64_t i) const {
    float value[1];
    load(Input{data_, static_cast<DType>(dtype_), packed_ != 0}, i, 1, value);
    return value[0];
  }

 private:
  const void* data_;  // may be null
  std::uint32_t dtype_, packed_;
};

// A tensor [samples, points, channels] seen through a window: element (row, term) is what result `row` reads.
class WindowView {
 public:
  struct Row {
    int sample, at[3];
  };
  struct Term {
    int tap[3], channel;
  };

  WindowView(const ConvWindow& window, const Elements& source, std::int64_t channels)
      : window_(window), source_(source), channels_(channels), of_channels_(channels) {
    for (int a = 0; a < 3; ++a) {
      of_results_[a] = Divisor(window.axes[a].results);
      of_taps_[a] = Divisor(window.axes[a].taps > 0 ? window.axes[a].taps : 1);  // without taps nothing is read
    }
  }

  __device__ __forceinline__ Row row(int i) const {
    Row row;
    for (int a = 2; a >= 0; --a) {
      const Quotient q = of_results_[a].divide(i);
      row.at[a] = q.remainder;
      i = q.quotient;
    }
    row.sample = i;
    return row;
  }
  __device__ __forceinline__ Term term(int k) const {
    Term term;
    Quotient q = of_channels_.divide(k);
    term.channel = q.remainder;
    for (int a = 2; a >= 0; --a) {
      q = of_taps_[a].divide(q.quotient);
      term.tap[a] = q.remainder;
    }
    return term;
  }
  __device__ __forceinline__ float read(const Row& row, const Term& term) const {
    std::int64_t at = row.sample;
    for (int a = 0; a < 3; ++a) {
      const std::int64_t position = window_.axes[a].position(row.at[a], term.tap[a]);
      if (position < 0) return 0;
      at = at * window_.axes[a].extent + position;
    }
    return source_[at * channels_ + term.channel];
  }

 private:
  ConvWindow window_;
  Elements source_;
  std::int64_t channels_;
  Divisor of_results_[3], of_taps_[3], of_channels_;
  std::uint32_t unused_ = 0;  // in place of padding
};

struct FwdOperands {
  using Row = WindowView::Row;
  using Column = std::int64_t;  // where the column's terms begin

  WindowView x;
  Elements weight;
  std::int64_t terms;

  __device__ __forceinline__ Row row(int i) const { return x.row(i); }
  __device__ __forceinline__ Column column(int j) const { return j * terms; }
  __device__ __forceinline__ float a(const Row& row, int k) const { return x.read(row, x.term(k)); }
  __device__ __forceinline__ float b(int k, const Column& column) const { return weight[column + k]; }
  __device__ __forceinline__ std::int64_t result_row(int i) const { return i; }
};

struct BwdDataOperands {
  using Row = WindowView::Row;
  using Column = int;

  WindowView dy;
  ConvWindow window;
  ConvShape shape;
  Elements weight;

  __device__ __forceinline__ Row row(int i) const { return dy.row(i); }
  __device__ __forceinline__ Column column(int j) const { return j; }
  __device__ __forceinline__ float a(const Row& row, int k) const { return dy.read(row, dy.term(k)); }
  __device__ __forceinline__ float b(int k, const Column& column) const {
    const WindowView::Term term = dy.term(k);
    std::int64_t at = term.channel;
    for (int a = 0; a < 3; ++a) at = at * shape.axes[a].kernel + window.axes[a].kernel_of(term.tap[a]);
    return weight[at * shape.in_channels + column];
  }
  __device__ __forceinline__ std::int64_t result_row(int i) const {
    const Row row = dy.row(i);
    std::int64_t at = row.sample;
    for (int a = 0; a < 3; ++a) at = at * shape.axes[a].in + window.axes[a].result_at(row.at[a]);
    return at;
  }
};

struct BwdWeightOperands {
  using Row = int;
  using Column = WindowView::Term;

  WindowView x;
  Elements dy;
  std::int64_t out_channels;

  __device__ __forceinline__ Row row(int i) const { return i; }
  __device__ __forceinline__ Column column(int j) const { return x.term(j); }
  __device__ __forceinline__ float a(const Row& row, int k) const { return dy[k * out_channels + row]; }
  __device__ __forceinline__ float b(int k, const Column& column) const { return x.read(x.row(k), column); }
  __device__ __forceinline__ std::int64_t result_row(int i) const { return i; }
};

// Without padding: the virtual GPU looks for addresses among the bytes of a kernel's parameters.
static_assert(std::has_unique_object_representations_v<FwdOperands> &&
              std::has_unique_object_representations_v<BwdDataOperands> &&
              std::has_unique_object_representations_v<BwdWeightOperands>);

// What is done with a sum of all terms.
struct ConvResult {
  Output out;
  Input bias = {};  // data may be null
  Pointwise activation = Pointwise::none;
  bool accumulates = false;

  __device__ __forceinline__ void put(std::int64_t at, int column, float sum) const {
    if (accumulates) sum += Elements({out.data, out.dtype, out.packed})[at];
    if (bias.data != nullptr) sum += Elements(bias)[column];
    const float value[1] = {pointwise(activation, sum)};
    store(out, at, 1, value);
  }
};

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
