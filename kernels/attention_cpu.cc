// Both passes work on blocks of scores that stay in the caches, as products of register tiles (kernels/common/simd.h).
// The lanes of a vector are queries in the forward pass, so that the softmax of a query is elementwise along its lane,
// and keys in the backward pass, so that dK and dV of a few keys stay in cache while all queries go by. In each case
// the long products have the form  acc[c, lane] += Σ x[·, c] · y[·, lane],  which reads rows of q, k, v and dO as they
// are. Rows are first copied, 16-bit ones converted, to a fixed step of kHead elements: constant addresses, no cache
// aliasing.
#include "kernels/attention.h"

#include <cstdint>

#include "kernels/common/parallel.h"
#include "kernels/common/rng.h"
#include "kernels/common/scratch.h"
#include "kernels/common/simd.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

using std::int64_t;

constexpr double kLog2E = 1.4426950408889634;

constexpr int kKeyBlock = 64;    // keys at a time in the forward pass
constexpr int kQueryPanels = 4;  // panels of queries that share a block of keys in the forward pass
constexpr int kQueryBlock = 64;  // queries at a time in the backward pass
constexpr int kKeyPanels = 1;    // panels of keys that share a block of queries in the backward pass
static_assert(kKeyBlock % kTileRows == 0 && kQueryBlock % kTileRows == 0 && 8 % kTileRows == 0);

// One vector for each of the vectors of a panel.
template <class T>
using PanelVector = Vector<T>[kTileVectors];

constexpr int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The tokens of one head of one batch item.
template <class In>
struct Rows {
  In* data;
  int64_t stride;  // elements between tokens

  Rows(In* base, int64_t stride_, const AttentionShape& s, int64_t tokens, int64_t pair)
      : data(base + pair / s.heads * tokens * stride_ + pair % s.heads * s.head_size), stride(stride_) {}
  In* operator[](int64_t token) const { return data + token * stride; }
};

// Rows [0, tokens) at a step of kHead elements, zeros up to kHead; `padding` more rows repeat the last.
template <int kHead, class In, class T>
void copy_rows(const Rows<const In>& rows, int64_t tokens, int64_t padding, int64_t head_size, T* __restrict__ to) {
  for (int64_t t = 0; t < tokens + padding; ++t, to += kHead) {
    const In* from = rows[least(t, tokens - 1)];
    for (int64_t c = 0; c < head_size; ++c) to[c] = convert<T>(from[c]);
    for (int64_t c = head_size; c < kHead; ++c) to[c] = T{0};
  }
}

// Tokens [begin, begin + count) as [head_size, kPanel]; lanes beyond count are zero.
template <class In, class T>
void transpose_rows(const Rows<const In>& rows, int64_t begin, int64_t count, int64_t head_size, T* __restrict__ to) {
  for (int64_t lane = 0; lane < kPanel<T>; ++lane) {
    if (lane < count) {
      const In* from = rows[begin + lane];
      for (int64_t c = 0; c < head_size; ++c) to[c * kPanel<T> + lane] = convert<T>(from[c]);
    } else {
      for (int64_t c = 0; c < head_size; ++c) to[c * kPanel<T> + lane] = T{0};
    }
  }
}

// Row `lane` of the output from a panel [head_size, kPanel].
template <class T, class Out>
void write_lane(const T* __restrict__ panel, int64_t lane, int64_t head_size, T factor, Out* __restrict__ to) {
  for (int64_t c = 0; c < head_size; ++c) to[c] = static_cast<Out>(panel[c * kPanel<T> + lane] * factor);
}

// What each of `count` scores from element `first` on is multiplied by: 0, or 1/(1 - p).
template <class T>
__attribute__((flatten)) void draw_dropout(const AttentionDropout& dropout, std::uint64_t first, int64_t count,
                                           T* __restrict__ factors) {
  const std::uint32_t threshold = drop_threshold(dropout.p);
  const T kept = T{1} / (T{1} - static_cast<T>(dropout.p));
  for (int64_t i = 0; i < count;) {
    const std::uint64_t index = first + static_cast<std::uint64_t>(i);
    const Philox4 bits = philox4x32(dropout.seed, dropout.stream, index / 4);
    for (std::uint64_t word = index % 4; word < 4 && i < count; ++word, ++i)
      factors[i] = bits.word[word] < threshold ? T{0} : kept;
  }
}

// acc[c, lane] = acc[c, lane] · rescale[lane] + Σ_r x[r·kHead + c] · y[r·kYStep + lane], r < count, c < head_size.
template <int kHead, int kYStep, class T>
void add_outer(const T* x, const T* y, int64_t count, int64_t head_size, const PanelVector<T>& rescale, T* acc) {
  for (int64_t c = 0; c < head_size; c += kTileRows) {
    Tile<T, kTileRows, kTileVectors> tile;
    tile.template load_from<kPanel<T>>(acc + c * kPanel<T>);
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) tile.c[i][v] *= rescale[v];
    tile.template multiply<1, kHead, kYStep>(x + c, y, count);
    tile.template store_to<kPanel<T>>(acc + c * kPanel<T>);
  }
}

// ---- forward --------------------------------------------------------------------------------------------------------

// The queries of one panel: the running softmax and the output so far, transposed.
template <class T, int kHead>
struct QueryPanel {
  T q[kHead * kPanel<T>];    // [HS, lanes]
  T o[kHead * kPanel<T>];    // [HS, lanes], not yet divided by sum
  PanelVector<T> reference;  // what is subtracted from the scores: near their maximum so far
  PanelVector<T> sum;        // Σ 2^(score - reference)
};

// Scores of a panel may exceed the reference by this much (a factor 2^8 in P) before the reference is moved.
constexpr int kSlack = 8;

template <class T, int kHead>
struct ForwardScratch {
  T scores[kKeyBlock * kPanel<T>];
  QueryPanel<T, kHead> panels[kQueryPanels];
};

// Scores of up to kKeyBlock keys; returns their maxima in `most`. Rows of k are rounded up to whole tiles.
template <class T, int kHead>
ISOBAR_INLINE void score_block(const T* q, const T* k, int64_t keys, int64_t head_size, T* __restrict__ scores,
                               PanelVector<T>& most) {
  for (Vector<T>& m : most) m = broadcast(-static_cast<T>(__builtin_inf()));
  for (int64_t key = 0; key < keys; key += kTileRows) {
    Tile<T, kTileRows, kTileVectors> tile;
    tile.clear();
    tile.template multiply<kHead, 1, kPanel<T>>(k + key * kHead, q, head_size);
    tile.template store_to<kPanel<T>>(scores + key * kPanel<T>);
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) most[v] = greater<T>(tile.c[i][v], most[v]);
  }
}

template <class T>
bool any_above(const PanelVector<T>& a, const PanelVector<T>& limit, T slack) {
  bool above = false;
  for (int v = 0; v < kTileVectors; ++v)
    for (int lane = 0; lane < kLanes<T>; ++lane) above |= a[v][lane] > limit[v][lane] + slack;
  return above;
}

// Scores to 2^(score · unit - reference), in place; adds them to `sum`.
template <class T>
ISOBAR_INLINE void exponentiate(T* __restrict__ scores, int64_t keys, T unit, const PanelVector<T>& reference,
                                PanelVector<T>& sum) {
  PanelVector<T> total, less;
  for (int v = 0; v < kTileVectors; ++v) total[v] = sum[v], less[v] = reference[v];
  for (int64_t key = 0; key < keys; ++key) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      T* at = scores + key * kPanel<T> + v * kLanes<T>;
      const Vector<T> p = exp2_of(load(at) * unit - less[v]);
      total[v] += p;
      store(at, p);
    }
  }
  for (int v = 0; v < kTileVectors; ++v) sum[v] = total[v];
}

// Which elements of all scores a panel of queries meets: lane i, key j of a block is first + i · row + j.
struct PanelDropout {
  const AttentionDropout& dropout;
  std::uint64_t first;
  int64_t row, lanes;
};
template <class T>
void drop(const PanelDropout& d, int64_t keys, T* __restrict__ p) {
  T factors[kKeyBlock];
  for (int64_t lane = 0; lane < d.lanes; ++lane) {
    draw_dropout(d.dropout, d.first + lane * d.row, keys, factors);
    for (int64_t j = 0; j < keys; ++j) p[j * kPanel<T> + lane] *= factors[j];
  }
}

// One block of keys for one panel of queries. A score times `unit` is the logarithm of P to base 2.
template <class T, int kHead>
__attribute__((noinline)) void attend(QueryPanel<T, kHead>& panel, const T* k, const T* v, int64_t keys,
                                      int64_t head_size, T unit, bool first, const PanelDropout& dropout,
                                      T* __restrict__ scores) {
  PanelVector<T> most, rescale;
  for (Vector<T>& factor : rescale) factor = broadcast(T{1});
  score_block<T, kHead>(panel.q, k, keys, head_size, scores, most);
  for (Vector<T>& m : most) m *= unit;
  if (first) {
    for (int v = 0; v < kTileVectors; ++v) panel.reference[v] = most[v];
  } else if (any_above(most, panel.reference, T{kSlack})) {
    for (int v = 0; v < kTileVectors; ++v) {
      const Vector<T> moved = greater<T>(most[v], panel.reference[v]);
      rescale[v] = exp2_of(panel.reference[v] - moved);
      panel.sum[v] *= rescale[v];
      panel.reference[v] = moved;
    }
  }
  exponentiate(scores, keys, unit, panel.reference, panel.sum);
  if (dropout.dropout.p != 0) drop(dropout, keys, scores);
  add_outer<kHead, kPanel<T>>(v, scores, keys, head_size, rescale, panel.o);
}

template <class In, class T, int kHead>
void forward(const AttentionFwd& a) {
  const AttentionShape& s = a.shape;
  const int64_t queries = s.q_tokens, keys = s.kv_tokens, head_size = s.head_size;
  const int64_t block_queries = kQueryPanels * kPanel<T>, blocks = ceil_div(queries, block_queries);
  const int64_t padding = ceil_div(keys, kTileRows) * kTileRows - keys;
  const T unit = static_cast<T>(a.scale * kLog2E);
  parallel_for(s.batch * s.heads * blocks, 1, [&](int64_t begin, int64_t end) {
    using Work = ForwardScratch<T, kHead>;
    auto* work =
        static_cast<Work*>(scratch(Scratch::attention, sizeof(Work) + 2 * (keys + padding) * kHead * sizeof(T)));
    T* k = reinterpret_cast<T*>(work + 1);
    T* v = k + (keys + padding) * kHead;
    int64_t packed_pair = -1;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t pair = item / blocks, query = item % blocks * block_queries;
      if (pair != packed_pair) {
        copy_rows<kHead>(Rows<const In>(static_cast<const In*>(a.k), a.k_stride, s, keys, pair), keys, padding,
                         head_size, k);
        copy_rows<kHead>(Rows<const In>(static_cast<const In*>(a.v), a.v_stride, s, keys, pair), keys, 0, head_size, v);
        packed_pair = pair;
      }
      const Rows<const In> q(static_cast<const In*>(a.q), a.q_stride, s, queries, pair);
      const Rows<In> o(static_cast<In*>(a.o), a.o_stride, s, queries, pair);
      T* lse = static_cast<T*>(a.lse) + pair * queries;
      const int64_t panels = least(kQueryPanels, ceil_div(queries - query, kPanel<T>));
      for (int64_t p = 0; p < panels; ++p) {
        QueryPanel<T, kHead>& panel = work->panels[p];
        const int64_t first = query + p * kPanel<T>;
        transpose_rows(q, first, queries - first, head_size, panel.q);
        for (T& value : panel.o) value = T{0};
        for (int i = 0; i < kTileVectors; ++i) panel.reference[i] = panel.sum[i] = Vector<T>{};
      }
      for (int64_t key = 0; key < keys; key += kKeyBlock) {
        const int64_t count = least(kKeyBlock, keys - key);
        for (int64_t p = 0; p < panels; ++p) {
          const int64_t first = query + p * kPanel<T>;
          const PanelDropout dropout{a.dropout, static_cast<std::uint64_t>((pair * queries + first) * keys + key), keys,
                                     least(kPanel<T>, queries - first)};
          attend(work->panels[p], k + key * kHead, v + key * kHead, count, head_size, unit, key == 0, dropout,
                 work->scores);
        }
      }
      for (int64_t p = 0; p < panels; ++p) {
        const QueryPanel<T, kHead>& panel = work->panels[p];
        const int64_t first = query + p * kPanel<T>;
        for (int64_t lane = 0; lane < least(kPanel<T>, queries - first); ++lane) {
          const T sum = panel.sum[lane / kLanes<T>][lane % kLanes<T>];
          const T reference = panel.reference[lane / kLanes<T>][lane % kLanes<T>];
          write_lane(panel.o, lane, head_size, T{1} / sum, o[first + lane]);
          lse[first + lane] = static_cast<T>((reference + __builtin_log2(sum)) / kLog2E);
        }
      }
    }
  });
}

// ---- backward -------------------------------------------------------------------------------------------------------

template <class T>
constexpr int kGroup = kKeyPanels* kPanel<T>;  // keys that go through all queries together

template <class T, int kHead>
struct BackwardScratch {
  T p[kQueryBlock * kGroup<T>];  // [queries, keys]
  T ds[kQueryBlock * kGroup<T>];
  T k[kGroup<T> * kHead];                         // [keys, kHead]
  T k_transposed[kKeyPanels][kHead * kPanel<T>];  // [HS, lanes]
  T v_transposed[kKeyPanels][kHead * kPanel<T>];
  T dk[kKeyPanels][kHead * kPanel<T>];
  T dv[kKeyPanels][kHead * kPanel<T>];
};

// What the backward pass needs of the queries of one (batch, head), at a step of kHead: rows beyond the last repeat it.
template <class T>
struct QueryRows {
  T* q;
  T* d_o;
  T* dq;         // sum so far, without scale
  T* neg_lse;    // -lse · log2(e)
  T* neg_delta;  // -Σ dO · O
};

// dq [rows, HS] += dS [rows, keys] · K [keys, HS], rows rounded up to whole tiles.
template <int kVectors, int kStep, int kHead, class T>
ISOBAR_INLINE void add_dq_columns(const T* ds, const T* k, int64_t rows, int64_t keys, T* dq) {
  for (int64_t r = 0; r < rows; r += kTileRows) {
    Tile<T, kTileRows, kVectors> tile;
    tile.template load_from<kHead>(dq + r * kHead);
    tile.template multiply<kStep, 1, kHead>(ds + r * kStep, k, keys);
    tile.template store_to<kHead>(dq + r * kHead);
  }
}
template <int kStep, int kHead, class T>
void add_dq(const T* ds, const T* k, int64_t rows, int64_t keys, int64_t head_size, T* dq) {
  int64_t c = 0;
  for (; head_size - c > 2 * kLanes<T>; c += 3 * kLanes<T>)
    add_dq_columns<3, kStep, kHead>(ds, k + c, rows, keys, dq + c);
  if (head_size - c > kLanes<T>)
    add_dq_columns<2, kStep, kHead>(ds, k + c, rows, keys, dq + c);
  else if (head_size > c)
    add_dq_columns<1, kStep, kHead>(ds, k + c, rows, keys, dq + c);
}

// out [rows, kStep] = X [rows, HS] · Y [HS, lanes], rows rounded up to whole tiles.
template <int kStep, int kHead, class T>
void product_rows(const T* x, const T* y, int64_t rows, int64_t head_size, T* out) {
  for (int64_t r = 0; r < rows; r += kTileRows) {
    Tile<T, kTileRows, kTileVectors> tile;
    tile.clear();
    tile.template multiply<kHead, 1, kPanel<T>>(x + r * kHead, y, head_size);
    tile.template store_to<kStep>(out + r * kStep);
  }
}

// p: scores to P, ds: dP to dS = P∘(dP - delta).
template <class T, int kHead>
void differentiate(int64_t count, T unit, const T* neg_lse, const T* neg_delta, BackwardScratch<T, kHead>& work) {
  for (int64_t r = 0; r < count; ++r)
    for (int64_t i = r * kGroup<T>; i < (r + 1) * kGroup<T>; i += kLanes<T>) {
      const Vector<T> p = exp2_of(load(work.p + i) * unit + neg_lse[r]);
      store(work.p + i, p);
      store(work.ds + i, p * (load(work.ds + i) + neg_delta[r]));
    }
}

// The same with dropout: p becomes dropout(P), ds P∘(dropout'(dP) - delta). Element (r, j) is first + r · row + j of all scores.
template <class T, int kHead>
void differentiate_dropped(const AttentionDropout& dropout, std::uint64_t first, int64_t row, int64_t count,
                           int64_t keys, T unit, const T* neg_lse, const T* neg_delta,
                           BackwardScratch<T, kHead>& work) {
  T factors[kGroup<T>] = {};
  for (int64_t r = 0; r < count; ++r) {
    draw_dropout(dropout, first + r * row, keys, factors);
    for (int64_t j = 0; j < kGroup<T>; j += kLanes<T>) {
      const int64_t i = r * kGroup<T> + j;
      const Vector<T> p = exp2_of(load(work.p + i) * unit + neg_lse[r]), factor = load(factors + j);
      store(work.p + i, p * factor);
      store(work.ds + i, p * (load(work.ds + i) * factor + neg_delta[r]));
    }
  }
}

// Queries [query, query + kQueryBlock) of a (batch, head) against keys [key, key + keys), which `work` holds.
template <class T, int kHead>
__attribute__((noinline)) void backward_block(const AttentionBwd& a, int64_t pair, int64_t query, int64_t key,
                                              int64_t keys, const QueryRows<T>& rows, BackwardScratch<T, kHead>& work) {
  constexpr int kStep = kGroup<T>;
  const int64_t head_size = a.shape.head_size, count = least(kQueryBlock, a.shape.q_tokens - query);
  const int64_t panels = ceil_div(keys, kPanel<T>);
  const T* q = rows.q + query * kHead;
  const T* d_o = rows.d_o + query * kHead;
  const T* neg_delta = rows.neg_delta + query;
  const T* neg_lse = rows.neg_lse + query;
  const T unit = static_cast<T>(a.scale * kLog2E);
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t at = p * kPanel<T>;
    product_rows<kStep, kHead>(q, work.k_transposed[p], count, head_size, work.p + at);
    product_rows<kStep, kHead>(d_o, work.v_transposed[p], count, head_size, work.ds + at);
  }
  if (a.dropout.p != 0) {
    const int64_t tokens = a.shape.kv_tokens, first = (pair * a.shape.q_tokens + query) * tokens + key;
    differentiate_dropped(a.dropout, static_cast<std::uint64_t>(first), tokens, count, keys, unit, neg_lse, neg_delta,
                          work);
  } else {
    differentiate(count, unit, neg_lse, neg_delta, work);
  }
  PanelVector<T> one;
  for (Vector<T>& factor : one) factor = broadcast(T{1});
  for (int64_t p = 0; p < panels; ++p) {
    add_outer<kHead, kStep>(d_o, work.p + p * kPanel<T>, count, head_size, one, work.dv[p]);
    add_outer<kHead, kStep>(q, work.ds + p * kPanel<T>, count, head_size, one, work.dk[p]);
  }
  add_dq<kStep, kHead>(work.ds, work.k, count, keys, head_size, rows.dq + query * kHead);
}

template <class In, class T, int kHead>
class Backward {
 public:
  static void run(const AttentionBwd& a) {
    const Backward backward(a);
    const int64_t pairs = a.shape.batch * a.shape.heads, items = pairs * backward.groups_;
    const int64_t parts = least(omp_get_max_threads(), items);
    // A part is a run of key groups. Where it covers a (batch, head) only in part, its dQ goes to a slot of `partial`:
    // slot 2·part for the first pair of the part, 2·part + 1 for the last. They are then summed in the order of parts.
    T* partial = nullptr;
    if (pairs % parts != 0)
      partial = static_cast<T*>(scratch(Scratch::attention_shared, 2 * parts * backward.dq_size() * sizeof(T)));
    parallel_for(parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        const int64_t begin = items * part / parts, end = items * (part + 1) / parts;
        for (int64_t item = begin; item < end;) {
          const int64_t pair = item / backward.groups_;
          const int64_t stop = least((pair + 1) * backward.groups_, end);
          const bool whole = stop - item == backward.groups_;
          const int64_t slot = 2 * part + (item == begin ? 0 : 1);
          backward.run_pair(pair, item % backward.groups_, stop - pair * backward.groups_,
                            whole ? nullptr : partial + slot * backward.dq_size());
          item = stop;
        }
      }
    });
    if (partial == nullptr) return;
    parallel_for(pairs, 1, [&](int64_t first, int64_t last) {
      for (int64_t pair = first; pair < last; ++pair) backward.sum_partial(pair, items, parts, partial);
    });
  }

 private:
  using Work = BackwardScratch<T, kHead>;

  explicit Backward(const AttentionBwd& a)
      : a_(a),
        groups_(ceil_div(a.shape.kv_tokens, kGroup<T>)),
        padded_(ceil_div(a.shape.q_tokens, kQueryBlock) * kQueryBlock) {}

  int64_t dq_size() const { return padded_ * kHead; }

  // Key groups [begin, end) of one (batch, head): writes their dk and dv; dq goes to `partial_dq`, or out when null.
  void run_pair(int64_t pair, int64_t begin, int64_t end, T* partial_dq) const {
    const int64_t own_dq = partial_dq == nullptr ? dq_size() : 0;
    auto* work = static_cast<Work*>(
        scratch(Scratch::attention, sizeof(Work) + (2 * dq_size() + own_dq + 2 * padded_) * sizeof(T)));
    QueryRows<T> rows;
    rows.q = reinterpret_cast<T*>(work + 1);
    rows.d_o = rows.q + dq_size();
    rows.neg_lse = rows.d_o + dq_size();
    rows.neg_delta = rows.neg_lse + padded_;
    rows.dq = partial_dq == nullptr ? rows.neg_delta + padded_ : partial_dq;
    pack_queries(pair, rows);
    for (int64_t group = begin; group < end; ++group) run_group(pair, group * kGroup<T>, rows, *work);
    if (partial_dq == nullptr) write_dq(pair, rows.dq);
  }

  void pack_queries(int64_t pair, const QueryRows<T>& rows) const {
    const AttentionShape& s = a_.shape;
    const int64_t queries = s.q_tokens, padding = padded_ - queries;
    const Rows<const In> o(static_cast<const In*>(a_.o), a_.o_stride, s, queries, pair);
    const Rows<const In> d_o(static_cast<const In*>(a_.d_o), a_.do_stride, s, queries, pair);
    copy_rows<kHead>(Rows<const In>(static_cast<const In*>(a_.q), a_.q_stride, s, queries, pair), queries, padding,
                     s.head_size, rows.q);
    copy_rows<kHead>(d_o, queries, padding, s.head_size, rows.d_o);
    const T* lse = static_cast<const T*>(a_.lse) + pair * queries;
    for (int64_t t = 0; t < padded_; ++t) {
      const In* row = o[least(t, queries - 1)];
      T delta = 0;
      for (int64_t c = 0; c < s.head_size; ++c) delta += static_cast<T>(row[c]) * rows.d_o[t * kHead + c];
      rows.neg_delta[t] = -delta;
      rows.neg_lse[t] = -lse[least(t, queries - 1)] * static_cast<T>(kLog2E);
    }
    for (int64_t i = 0; i < dq_size(); ++i) rows.dq[i] = T{0};
  }

  // All queries against keys [key, key + kGroup<T>).
  void run_group(int64_t pair, int64_t key, const QueryRows<T>& rows, Work& work) const {
    const AttentionShape& s = a_.shape;
    const int64_t head_size = s.head_size, count = least(kGroup<T>, s.kv_tokens - key);
    const Rows<const In> k(static_cast<const In*>(a_.k), a_.k_stride, s, s.kv_tokens, pair);
    const Rows<const In> v(static_cast<const In*>(a_.v), a_.v_stride, s, s.kv_tokens, pair);
    Rows<const In> k_group = k;
    k_group.data = k[key];
    copy_rows<kHead>(k_group, count, 0, head_size, work.k);
    const int64_t panels = ceil_div(count, kPanel<T>);
    for (int64_t p = 0; p < panels; ++p) {
      transpose_rows(k, key + p * kPanel<T>, count - p * kPanel<T>, head_size, work.k_transposed[p]);
      transpose_rows(v, key + p * kPanel<T>, count - p * kPanel<T>, head_size, work.v_transposed[p]);
      for (T& value : work.dk[p]) value = T{0};
      for (T& value : work.dv[p]) value = T{0};
    }
    for (int64_t query = 0; query < s.q_tokens; query += kQueryBlock)
      backward_block(a_, pair, query, key, count, rows, work);
    const Rows<In> dk(static_cast<In*>(a_.dk), a_.dk_stride, s, s.kv_tokens, pair);
    const Rows<In> dv(static_cast<In*>(a_.dv), a_.dv_stride, s, s.kv_tokens, pair);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t p = j / kPanel<T>, lane = j % kPanel<T>;
      write_lane(work.dk[p], lane, head_size, static_cast<T>(a_.scale), dk[key + j]);
      write_lane(work.dv[p], lane, head_size, T{1}, dv[key + j]);
    }
  }

  void write_dq(int64_t pair, const T* dq) const {
    const AttentionShape& s = a_.shape;
    const Rows<In> out(static_cast<In*>(a_.dq), a_.dq_stride, s, s.q_tokens, pair);
    for (int64_t t = 0; t < s.q_tokens; ++t) {
      In* to = out[t];
      for (int64_t c = 0; c < s.head_size; ++c) to[c] = static_cast<In>(dq[t * kHead + c] * static_cast<T>(a_.scale));
    }
  }

  // Adds the partial dq of a pair that several parts share, in the order of the parts.
  void sum_partial(int64_t pair, int64_t items, int64_t parts, T* partial) const {
    T* total = nullptr;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = items * part / parts, end = items * (part + 1) / parts;
      const int64_t first = begin > pair * groups_ ? begin : pair * groups_, last = least(end, (pair + 1) * groups_);
      if (first >= last || last - first == groups_) continue;
      T* dq = partial + (2 * part + (first == begin ? 0 : 1)) * dq_size();
      if (total == nullptr)
        total = dq;
      else
        for (int64_t i = 0; i < dq_size(); ++i) total[i] += dq[i];
    }
    if (total != nullptr) write_dq(pair, total);
  }

  const AttentionBwd& a_;
  int64_t groups_;  // of keys
  int64_t padded_;  // queries, rounded up to whole blocks
};

// Calls f with the smallest step between rows that holds a head.
template <int kValue>
struct Step {
  static constexpr int value = kValue;
};
template <class F>
void with_step(int64_t head_size, const F& f) {
  if (head_size <= 32) return f(Step<32>{});
  if (head_size <= 48) return f(Step<48>{});
  if (head_size <= 64) return f(Step<64>{});
  f(Step<128>{});
}

}  // namespace

void attention_fwd(const AttentionFwd& a) {
  visit_floating(a.dtype, [&](auto type) {
    using In = typename decltype(type)::type;
    with_step(a.shape.head_size, [&](auto step) { forward<In, accumulator_t<In>, step.value>(a); });
  });
}

void attention_bwd(const AttentionBwd& a) {
  visit_floating(a.dtype, [&](auto type) {
    using In = typename decltype(type)::type;
    with_step(a.shape.head_size, [&](auto step) { Backward<In, accumulator_t<In>, step.value>::run(a); });
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(attention_fwd, AttentionFwd)
ISOBAR_CPU_KERNEL(attention_bwd, AttentionBwd)
