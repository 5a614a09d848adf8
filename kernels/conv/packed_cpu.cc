#include "kernels/conv/packed.h"

#include <cstdint>

#include "kernels/conv/window.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/gemm/packed_product.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

// ---- where things lie -----------------------------------------------------------------------------------------------

// A result: of which sample, and which one on each axis. Rows of a product are the results in their order.
struct Place {
  int64_t sample, at[3];
};

Place place_of(const ConvWindow& w, int64_t row) {
  Place p;
  p.at[2] = row % w.axes[2].results;
  row /= w.axes[2].results;
  p.at[1] = row % w.axes[1].results;
  row /= w.axes[1].results;
  p.at[0] = row % w.axes[0].results;
  p.sample = row / w.axes[0].results;
  return p;
}

ISOBAR_INLINE void go_to_next(const ConvWindow& w, Place& p) {
  for (int a = 2; a >= 0; --a) {
    if (++p.at[a] < w.axes[a].results) return;
    p.at[a] = 0;
  }
  ++p.sample;
}

// A term of a result: taps of the two outer axes, and how far it is along the line that the taps of the last axis and
// the channels make.
struct TermPlace {
  int64_t tap[2], at;
};

TermPlace term_of(const ConvWindow& w, int64_t channels, int64_t term) {
  const int64_t line = w.axes[2].taps * channels;
  const int64_t outer = term / line;
  return {{outer / w.axes[1].taps, outer % w.axes[1].taps}, term % line};
}

// ---- gathering ------------------------------------------------------------------------------------------------------

template <class T>
ISOBAR_INLINE void put_zeros(T* to, int64_t n) {
  __builtin_memset(static_cast<void*>(to), 0, static_cast<std::size_t>(n) * sizeof(T));
}

template <class In, class T>
ISOBAR_INLINE void put_run(const In* from, int64_t n, T* to) {
  if constexpr (std::is_same_v<In, T>)
    __builtin_memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  else
    convert_run(from, to, n);
}

// Elements [first, first + n) of a line of `length` elements, with what lies beyond its ends.
template <class In, class T>
ISOBAR_INLINE void gather_line(const In* line, int64_t length, bool wraps, int64_t first, int64_t n, T* to) {
  while (n > 0) {
    int64_t count = n;
    if (first >= 0 && first < length) {
      count = min(n, length - first);
      put_run(line + first, count, to);
    } else if (wraps) {
      first = (first % length + length) % length;
      continue;
    } else {
      if (first < 0) count = min(n, -first);
      put_zeros(to, count);
    }
    first += count;
    to += count;
    n -= count;
  }
}

// What a window reads: [samples, points, channels].
template <class In>
struct Source {
  const In* data;
  int64_t channels;
};

// Terms of one result, `count` of them from `term` on.
template <class In, class T>
void gather(const ConvWindow& w, const Source<In>& source, const Place& place, TermPlace term, int64_t count, T* to) {
  const int64_t channels = source.channels, line = w.axes[2].taps * channels;
  while (count > 0) {
    const int64_t n = min(count, line - term.at);
    const int64_t p0 = w.axes[0].position(place.at[0], term.tap[0]);
    const int64_t p1 = w.axes[1].position(place.at[1], term.tap[1]);
    if (p0 < 0 || p1 < 0) {
      put_zeros(to, n);
    } else {
      const ConvWindowAxis& last = w.axes[2];
      const In* from =
          source.data + ((place.sample * w.axes[0].extent + p0) * w.axes[1].extent + p1) * last.extent * channels;
      for (int64_t r = 0; r < last.runs; ++r) {
        const ConvRun& run = last.run[r];
        const int64_t run_begin = run.first * channels, run_end = run_begin + run.count * channels;
        const int64_t begin = term.at > run_begin ? term.at : run_begin, end = min(term.at + n, run_end);
        const int64_t first = (place.at[2] * last.step + run.offset) * channels + (begin - run_begin);
        gather_line(from, last.extent * channels, last.edge == Edge::wrap, first, end - begin, to + (begin - term.at));
      }
    }
    to += n;
    count -= n;
    term.at = 0;
    if (++term.tap[1] == w.axes[1].taps) {
      term.tap[1] = 0;
      ++term.tap[0];
    }
  }
}

// ---- the operands of the products -----------------------------------------------------------------------------------

// Of fwd and bwd_data, A: a row is a result, its terms are what its window reads.
template <class Format>
struct GatheredRows {
  using In = typename Format::In;
  using T = typename Format::Packed;

  const ConvWindow& window;
  Source<In> source;

  void pack(int64_t row, int64_t rows, const Depth& depth, T* packed) const {
    const TermPlace first = term_of(window, source.channels, depth.begin);
    Place place = place_of(window, row);
    for (int64_t i = 0; i < round_up(rows, kTileRows); ++i) {
      T* to = packed + i * kRowStep;
      if (i < rows) {
        const auto put = [&](typename Format::Term* terms) {
          gather(window, source, place, first, depth.terms, terms);
        };
        Format::pack_gathered(put, depth.terms, to);
        go_to_next(window, place);
      } else {
        put_zeros(to, depth.elements);
      }
    }
  }
};

// Of bwd_weight, B: a term is a result, its columns are what its window reads.
template <class Format>
struct GatheredColumns {
  using In = typename Format::In;
  using T = typename Format::Packed;
  static constexpr int64_t kWidth = kPanel<typename Format::Sum>;

  const ConvWindow& window;
  Source<In> source;

  void pack(int64_t column, const Depth& depth, T* packed) const {
    const TermPlace first = term_of(window, source.channels, column);
    const int64_t width = min(kWidth, window.taps() * source.channels - column);
    Place place = place_of(window, depth.begin);
    for (int64_t k = 0; k < depth.elements; ++k, packed += kWidth) {
      const int64_t left = depth.terms - k * Format::kTerms;
      if constexpr (Format::kTerms == 1) {
        gather(window, source, place, first, width, packed);
        put_zeros(packed + width, kWidth - width);
        go_to_next(window, place);
      } else {
        In rows[Format::kTerms * kWidth];
        for (int64_t t = 0; t < min(Format::kTerms, left); ++t) {
          gather(window, source, place, first, width, rows + t * kWidth);
          go_to_next(window, place);
        }
        pack_row<Format>(rows, kWidth, left, width, packed);
      }
    }
  }
};

// Of bwd_data, B: the weight [Co, K, Ci], whose terms are the taps of the window and, of each, the channels of y.
template <class Format>
struct WindowWeights {
  using In = typename Format::In;
  using T = typename Format::Packed;
  static constexpr int64_t kWidth = kPanel<typename Format::Sum>;

  const ConvWindow& window;
  const ConvShape& shape;
  const In* weight;

  // The rows of Ci elements of the terms, one after the other.
  struct Rows {
    const WindowWeights& of;
    int64_t tap, channel;
    const In* of_tap;

    Rows(const WindowWeights& weights, int64_t term)
        : of(weights),
          tap(term / weights.shape.out_channels),
          channel(term % weights.shape.out_channels),
          of_tap(weights.first_row_of(tap)) {}
    const In* row() const { return of_tap + channel * of.shape.taps() * of.shape.in_channels; }
    void go_to_next() {
      if (++channel < of.shape.out_channels) return;
      channel = 0;
      if (++tap < of.window.taps()) of_tap = of.first_row_of(tap);
    }
  };

  void pack(int64_t column, const Depth& depth, T* packed) const {
    const int64_t width = min(kWidth, shape.in_channels - column);
    Rows rows(*this, depth.begin);
    for (int64_t k = 0; k < depth.elements; ++k, packed += kWidth) {
      const int64_t left = depth.terms - k * Format::kTerms;
      const In* from = rows.row();
      rows.go_to_next();
      int64_t step = 0;  // to the second term of a pair
      if (Format::kTerms == 2 && left > 1) {
        step = rows.row() - from;
        rows.go_to_next();
      }
      pack_row<Format>(from + column, step, left, width, packed);
    }
  }

 private:
  const In* first_row_of(int64_t tap) const {
    const ConvWindowAxis* axes = window.axes;
    const int64_t outer = tap / axes[2].taps;
    const int64_t k0 = axes[0].kernel_of(outer / axes[1].taps), k1 = axes[1].kernel_of(outer % axes[1].taps);
    const int64_t k2 = axes[2].kernel_of(tap % axes[2].taps);
    return weight + ((k0 * shape.axes[1].kernel + k1) * shape.axes[2].kernel + k2) * shape.in_channels;
  }
};

// Calls f(Type<F>{}) with the format that packs elements of a dtype as Format multiplies them: 16 bits become fp32 on
// the way, so that a product has one code for all of them.
template <class Format, class F>
ISOBAR_INLINE void visit_packed(DType dtype, const F& f) {
  if constexpr (std::is_same_v<Format, Single<float>>) {
    if (dtype == DType::bf16) return f(Type<Single<bf16>>{});
    if (dtype == DType::fp16) return f(Type<Single<fp16>>{});
  }
  f(Type<Format>{});
}

// An operand of a product: make(Type<F>{}) is what packs it.
template <class Format, bool kTransposed_, class Make>
struct Operand {
  static constexpr bool kTransposed = kTransposed_;

  DType dtype;
  Make make;

  template <class... Arguments>
  void pack(const Arguments&... arguments) const {
    visit_packed<Format>(dtype, [&](auto format) { make(format).pack(arguments...); });
  }
};
template <class Format, bool kTransposed, class Make>
Operand<Format, kTransposed, Make> operand(DType dtype, const Make& make) {
  return {dtype, make};
}

template <class Format>
auto gathered_rows(const ConvWindow& window, DType dtype, const void* source, int64_t channels) {
  return operand<Format, false>(dtype, [=, &window]<class F>(Type<F>) {
    return GatheredRows<F>{window, {static_cast<const typename F::In*>(source), channels}};
  });
}

// ---- results --------------------------------------------------------------------------------------------------------

template <class T, class F>
ISOBAR_INLINE void visit_result(DType dtype, const F& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::bf16) return f(Type<bf16>{});
    if (dtype == DType::fp16) return f(Type<fp16>{});
  }
  f(Type<T>{});
}

// What is done with a row of sums. Sums over earlier terms are in `partial`, [m, n], or where it is null in the result
// itself.
template <class T>
struct Results {
  void* out;  // the tensor
  DType dtype;
  int64_t n;
  const T* bias = nullptr;
  Pointwise activation = Pointwise::none;
  Grad mode = Grad::overwrite;
  T* partial = nullptr;
  const ConvWindow* window = nullptr;  // null: the rows of the product are those of the tensor
  int64_t extents[3] = {};             // of the tensor
  bool first = true, last = true;      // are these the first, the last terms of the sums?

  ISOBAR_INLINE void row(T* __restrict__ sums, int64_t row, int64_t column, int64_t width) const {
    const int64_t at = row_of_tensor(row) * n + column;
    T* const kept = partial != nullptr ? partial + row * n + column : static_cast<T*>(out) + at;
    if (!first) {
      for (int64_t j = 0; j < width; ++j) sums[j] += kept[j];
    } else if (mode == Grad::accumulate) {
      visit_result<T>(dtype, [&]<class Out>(Type<Out>) {
        const Out* from = static_cast<const Out*>(out) + at;
        for (int64_t j = 0; j < width; ++j) sums[j] += convert<T>(from[j]);
      });
    }
    if (!last) {
      for (int64_t j = 0; j < width; ++j) kept[j] = sums[j];
      return;
    }
    if (bias != nullptr)
      for (int64_t j = 0; j < width; ++j) sums[j] += bias[column + j];
    if (activation != Pointwise::none)
      visit_pointwise(activation, [&]<class Kind>(Kind) {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) sums[j] = Kind::value(sums[j]);
      });
    visit_result<T>(dtype, [&]<class Out>(Type<Out>) { put_run(sums, width, static_cast<Out*>(out) + at); });
  }

  ISOBAR_INLINE void prefetch(int64_t row, int64_t column) const {
    if (window != nullptr) return;
    const auto size = static_cast<int64_t>(size_of(dtype));
    const char* at = static_cast<const char*>(out) + (row * n + column) * size;
    for (int i = 0; i < kTileRows; ++i)
      for (int64_t byte = 0; byte < kPanel<T> * size; byte += 64) __builtin_prefetch(at + i * n * size + byte, 1);
  }

 private:
  ISOBAR_INLINE int64_t row_of_tensor(int64_t row) const {
    if (window == nullptr) return row;
    const Place p = place_of(*window, row);
    int64_t at = p.sample;
    for (int a = 0; a < 3; ++a) at = at * extents[a] + window->axes[a].result_at(p.at[a]);
    return at;
  }
};

// Where sums of earlier terms are kept.
template <class Format>
typename Format::Sum* partial_of(DType out_dtype, const Extents& e) {
  using T = typename Format::Sum;
  if (!is_16_bit(out_dtype) || passes_of<Format>(e.k) <= 1) return nullptr;
  return static_cast<T*>(scratch(Scratch::gemm_partial, static_cast<std::size_t>(e.m * e.n) * sizeof(T)));
}

// Results that no term adds to.
template <class T>
void finish_without_terms(const Results<T>& results, int64_t rows) {
  if (results.mode == Grad::accumulate) return;
  parallel_for(rows, kGrain / results.n + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t column = 0; column < results.n; column += kPanel<T>) {
        T sums[kPanel<T>] = {};
        results.row(sums, row, column, min(kPanel<T>, results.n - column));
      }
  });
}

// ---- few output channels --------------------------------------------------------------------------------------------

// Whether a product of each tap for itself, [positions, taps·n], takes less than half the columns of one whose
// terms are all taps. `positions`: of the source, for each result. It depends on no extent of the volume: a part of it
// has the bits of the whole.
template <class T>
bool folds(int64_t taps, int64_t n, int64_t positions) {
  return 2 * positions * round_up(taps * n, kPanel<T>) <= taps * round_up(n, kPanel<T>);
}

// The products of all taps of one sample, [positions, columns]: where channel c of tap t lies.
template <class T>
struct TapProducts {
  const T* data;
  int64_t columns, tap_step, channel_step;
};

// Makes them, of the sample's source [positions, channels], with the weight as it lies in memory.
template <class T>
TapProducts<T> multiply_taps(const ConvShape& s, DType dtype, const void* source, const void* weight, bool is_fwd) {
  const int64_t m = is_fwd ? s.in_points() : s.out_points(), n = s.taps() * (is_fwd ? s.out_channels : s.in_channels);
  auto* products = static_cast<T*>(scratch(Scratch::conv_taps, static_cast<std::size_t>(m * n) * sizeof(T)));
  gemm_packed(GemmArgs{.m = m,
                       .n = n,
                       .k = is_fwd ? s.in_channels : s.out_channels,
                       .transpose_b = is_fwd,
                       .in_dtype = dtype,
                       .out_dtype = accumulator_of(dtype),
                       .a = source,
                       .b = weight,
                       .c = products},
              Stream{});
  return {products, n, is_fwd ? 1 : s.in_channels, is_fwd ? s.taps() : 1};
}

// Adds the taps of each result of a window, in the order of its terms.
template <class T>
void add_taps(const ConvShape& s, const ConvWindow& w, const TapProducts<T>& products, const Results<T>& results) {
  const ConvWindowAxis &d = w.axes[0], &h = w.axes[1], &v = w.axes[2];
  parallel_for(w.results(), kGrain / (w.taps() * results.n + 1) + 1, [&](int64_t begin, int64_t end) {
    Place p = place_of(w, begin);
    for (int64_t row = begin; row < end; ++row, go_to_next(w, p)) {
      T sums[kPanel<T>] = {};
      for (int64_t t0 = 0; t0 < d.taps; ++t0)
        for (int64_t t1 = 0; t1 < h.taps; ++t1)
          for (int64_t t2 = 0; t2 < v.taps; ++t2) {
            const int64_t p0 = d.position(p.at[0], t0), p1 = h.position(p.at[1], t1), p2 = v.position(p.at[2], t2);
            if (p0 < 0 || p1 < 0 || p2 < 0) continue;
            const int64_t k =
                (d.kernel_of(t0) * s.axes[1].kernel + h.kernel_of(t1)) * s.axes[2].kernel + v.kernel_of(t2);
            const T* from =
                products.data + ((p0 * h.extent + p1) * v.extent + p2) * products.columns + k * products.tap_step;
            for (int64_t c = 0; c < results.n; ++c) sums[c] += from[c * products.channel_step];
          }
      results.row(sums, row, 0, results.n);
    }
  });
}

const void* moved(const void* data, int64_t elements, DType dtype) {
  return static_cast<const char*>(data) + elements * static_cast<int64_t>(size_of(dtype));
}

// ---- the three kernels ----------------------------------------------------------------------------------------------

template <class T>
void fold_fwd(const ConvFwdArgs& a, Results<T> results) {
  const ConvShape& s = a.shape;
  const ConvWindow window = conv_fwd_window(s);
  for (int64_t b = 0; b < s.batch; ++b) {
    const void* x = moved(a.x, b * s.in_points() * s.in_channels, a.dtype);
    results.out = const_cast<void*>(moved(a.y, b * s.out_points() * s.out_channels, a.out_dtype));
    add_taps(s, window, multiply_taps<T>(s, a.dtype, x, a.weight, true), results);
  }
}

template <class Format>
void fwd(const ConvFwdArgs& a) {
  using T = typename Format::Sum;
  const ConvShape& s = a.shape;
  const auto [m, n, k] = conv_fwd_product(s);
  Results<T> results{
      .out = a.y, .dtype = a.out_dtype, .n = n, .bias = static_cast<const T*>(a.bias), .activation = a.activation};
  const int64_t strides = s.axes[0].stride * s.axes[1].stride * s.axes[2].stride;
  if (folds<T>(s.taps(), n, strides)) return fold_fwd(a, results);
  const Extents extents{m, n, k};
  results.partial = partial_of<Format>(a.out_dtype, extents);
  const ConvWindow window = conv_fwd_window(s);
  const auto weights = operand<Format, true>(a.dtype, [&a, n = n, k = k]<class F>(Type<F>) {
    return MatrixB<F>{static_cast<const typename F::In*>(a.weight), n, k, true};
  });
  multiply<Format>(gathered_rows<Format>(window, a.dtype, a.x, s.in_channels), weights, results, extents);
}

template <class T>
void fold_bwd_data(const ConvBwdDataArgs& a, Results<T> results) {
  const ConvShape& s = a.shape;
  for (int64_t b = 0; b < s.batch; ++b) {
    const void* dy = moved(a.dy, b * s.out_points() * s.out_channels, a.dtype);
    results.out = const_cast<void*>(moved(a.dx, b * s.in_points() * s.in_channels, a.out_dtype));
    const TapProducts<T> products = multiply_taps<T>(s, a.dtype, dy, a.weight, false);
    for (int64_t c = 0; c < conv_classes(s); ++c) {
      const ConvWindow window = conv_bwd_data_window(s, c);
      results.window = &window;
      add_taps(s, window, products, results);
    }
  }
}

template <class Format>
void bwd_data(const ConvBwdDataArgs& a) {
  using T = typename Format::Sum;
  const ConvShape& s = a.shape;
  Results<T> results{.out = a.dx,
                     .dtype = a.out_dtype,
                     .n = s.in_channels,
                     .bias = static_cast<const T*>(a.bias),
                     .activation = a.activation,
                     .mode = a.mode,
                     .extents = {s.axes[0].in, s.axes[1].in, s.axes[2].in}};
  if (folds<T>(s.taps(), s.in_channels, 1)) return fold_bwd_data(a, results);
  for (int64_t c = 0; c < conv_classes(s); ++c) {
    const ConvWindow window = conv_bwd_data_window(s, c);
    const Extents extents{s.batch * window.results(), s.in_channels, window.taps() * s.out_channels};
    if (extents.m == 0) continue;
    results.window = conv_classes(s) > 1 ? &window : nullptr;
    if (extents.k == 0) {
      finish_without_terms(results, extents.m);
      continue;
    }
    results.partial = partial_of<Format>(a.out_dtype, extents);
    const auto weights = operand<Format, true>(a.dtype, [&]<class F>(Type<F>) {
      return WindowWeights<F>{window, s, static_cast<const typename F::In*>(a.weight)};
    });
    multiply<Format>(gathered_rows<Format>(window, a.dtype, a.dy, s.out_channels), weights, results, extents);
  }
}

template <class Format>
void bwd_weight(const ConvBwdWeightArgs& a) {
  using T = typename Format::Sum;
  const ConvShape& s = a.shape;
  const auto [m, n, k] = conv_bwd_weight_product(s);
  const Results<T> results{.out = a.dweight, .dtype = accumulator_of(a.dtype), .n = n, .mode = a.mode};
  if (k == 0) return finish_without_terms(results, m);
  const ConvWindow window = conv_fwd_window(s);
  const auto dy = operand<Format, true>(a.dtype, [&]<class F>(Type<F>) {
    return MatrixA<F, true>{static_cast<const typename F::In*>(a.dy), s.out_channels};
  });
  const auto x = operand<Format, true>(a.dtype, [&]<class F>(Type<F>) {
    return GatheredColumns<F>{window, {static_cast<const typename F::In*>(a.x), s.in_channels}};
  });
  multiply<Format>(dy, x, results, {m, n, k});
}

// Calls f(Type<Format>{}) with the way in which this machine multiplies elements of a dtype.
template <class F>
void visit_format(DType dtype, const F& f) {
#if defined(ISOBAR_ISA_IS_avx512)
  if (dtype == DType::bf16 && bf16_products() == Bf16Products::pairs) return f(Type<InPairs<Pairs>>{});
  if (dtype == DType::bf16 && bf16_products() == Bf16Products::emulated_pairs) return f(Type<InPairs<EmulatedPairs>>{});
#endif
  if (dtype == DType::fp64) return f(Type<Single<double>>{});
  f(Type<Single<float>>{});
}

}  // namespace

void conv_fwd_packed(const ConvFwdArgs& a) {
  if (a.shape.batch == 0) return;
  visit_format(a.dtype, [&]<class Format>(Type<Format>) { fwd<Format>(a); });
}

void conv_bwd_data_packed(const ConvBwdDataArgs& a) {
  if (a.shape.batch == 0) return;
  visit_format(a.dtype, [&]<class Format>(Type<Format>) { bwd_data<Format>(a); });
}

void conv_bwd_weight_packed(const ConvBwdWeightArgs& a) {
  visit_format(a.dtype, [&]<class Format>(Type<Format>) { bwd_weight<Format>(a); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(conv_fwd_packed, ConvFwdArgs)
ISOBAR_CPU_KERNEL(conv_bwd_data_packed, ConvBwdDataArgs)
ISOBAR_CPU_KERNEL(conv_bwd_weight_packed, ConvBwdWeightArgs)
