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

// Which place of a tensor [samples, points, channels] a result reads through a window: rows are results, terms are taps
// of the window and, the faster index, channels.
class WindowIndex {
 public:
  struct Row {
    int sample, at[3];
  };
  struct Tap {
    int at[3];
  };

  WindowIndex(const ConvWindow& window, std::int64_t channels) : window_(window), of_channels_(channels) {
    for (int a = 0; a < 3; ++a) {
      of_results_[a] = Divisor(window.axes[a].results);
      of_taps_[a] = Divisor(window.axes[a].taps > 0 ? window.axes[a].taps : 1);  // without taps nothing is read
    }
  }

  __device__ __forceinline__ const ConvWindowAxis& axis(int a) const { return window_.axes[a]; }
  __device__ __forceinline__ int channels() const { return of_channels_.divisor(); }

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
  // The number of a term's tap, and its channel.
  __device__ __forceinline__ Quotient term(int k) const { return of_channels_.divide(k); }
  __device__ __forceinline__ Tap tap(int number) const {
    Tap tap;
    for (int a = 2; a >= 0; --a) {
      const Quotient q = of_taps_[a].divide(number);
      tap.at[a] = q.remainder;
      number = q.quotient;
    }
    return tap;
  }

 private:
  ConvWindow window_;
  Divisor of_results_[3], of_taps_[3], of_channels_;
  std::uint32_t unused_ = 0;  // in place of padding
};

// The tensor itself: element (row, term) is what result `row` reads.
class WindowView {
 public:
  using Row = WindowIndex::Row;
  struct Term {
    WindowIndex::Tap tap;
    int channel;
  };

  WindowView(const ConvWindow& window, const Elements& source, std::int64_t channels)
      : index_(window, channels), source_(source) {}

  __device__ __forceinline__ Row row(int i) const { return index_.row(i); }
  __device__ __forceinline__ Term term(int k) const {
    const Quotient q = index_.term(k);
    return {index_.tap(q.quotient), q.remainder};
  }
  __device__ __forceinline__ float read(const Row& row, const Term& term) const {
    std::int64_t at = row.sample;
    for (int a = 0; a < 3; ++a) {
      const std::int64_t position = index_.axis(a).position(row.at[a], term.tap.at[a]);
      if (position < 0) return 0;
      at = at * index_.axis(a).extent + position;
    }
    return source_[at * index_.channels() + term.channel];
  }
  // Which element of the kernel a tap is, along one axis.
  __device__ __forceinline__ std::int64_t kernel_of(int a, const Term& term) const {
    return index_.axis(a).kernel_of(term.tap.at[a]);
  }

 private:
  WindowIndex index_;
  Elements source_;
};

// Where the rows of a result lie in its tensor.
class ResultRows {
 public:
  ResultRows() = default;  // in their order
  // Through the window of bwd_data.
  ResultRows(const ConvWindow& window, const ConvShape& shape) {
    for (int a = 0; a < 3; ++a) {
      const ConvWindowAxis& axis = window.axes[a];
      of_results_[a] = Divisor(axis.results);
      first_[a] = static_cast<int>(axis.first_result);
      step_[a] = static_cast<int>(axis.result_step);
      extent_[a] = static_cast<int>(shape.axes[a].in);
    }
  }

  __device__ __forceinline__ std::int64_t operator[](int row) const {
    int at[3];
    for (int a = 2; a >= 0; --a) {
      const Quotient q = of_results_[a].divide(row);
      at[a] = first_[a] + q.remainder * step_[a];
      row = q.quotient;
    }
    std::int64_t result = row;
    for (int a = 0; a < 3; ++a) result = result * extent_[a] + at[a];
    return result;
  }

 private:
  Divisor of_results_[3];
  int first_[3] = {}, step_[3] = {1, 1, 1}, extent_[3] = {1, 1, 1};
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
};

struct BwdDataOperands {
  using Row = WindowView::Row;
  using Column = int;

  WindowView dy;
  ConvShape shape;
  Elements weight;

  __device__ __forceinline__ Row row(int i) const { return dy.row(i); }
  __device__ __forceinline__ Column column(int j) const { return j; }
  __device__ __forceinline__ float a(const Row& row, int k) const { return dy.read(row, dy.term(k)); }
  __device__ __forceinline__ float b(int k, const Column& column) const {
    const WindowView::Term term = dy.term(k);
    std::int64_t at = term.channel;
    for (int a = 0; a < 3; ++a) at = at * shape.axes[a].kernel + dy.kernel_of(a, term);
    return weight[at * shape.in_channels + column];
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
};

// Without padding: the virtual GPU looks for addresses among the bytes of a kernel's parameters.
static_assert(std::has_unique_object_representations_v<FwdOperands> &&
              std::has_unique_object_representations_v<BwdDataOperands> &&
              std::has_unique_object_representations_v<BwdWeightOperands> &&
              std::has_unique_object_representations_v<ResultRows>);

// What is done with a sum of all terms.
struct ConvResult {
  Output out;
  Input bias = {};  // data may be null
  Pointwise activation = Pointwise::none;
  bool accumulates = false;

  // Of columns [column, column + count) of a row, whose first element is element `at` of the output.
  template <int N>
  __device__ __forceinline__ void put(std::int64_t at, int column, int count, float (&sum)[N]) const {
    if (accumulates) add<N>({out.data, out.dtype, out.packed}, at, count, sum);
    if (bias.data != nullptr) add<N>(bias, column, count, sum);
    for (int i = 0; i < N; ++i) sum[i] = pointwise(activation, sum[i]);
    store(out, at, count, sum);
  }

 private:
  template <int N>
  static __device__ __forceinline__ void add(const Input& from, std::int64_t at, int count, float (&sum)[N]) {
    float more[N];
    load(from, at, count, more);
    for (int i = 0; i < N; ++i) sum[i] += more[i];
  }
};

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
