// The products of attention as register tiles of vectors (kernels/cpu/simd.h), for every type and instruction set. The
// long ones have the form  acc[c, lane] += Σ x[·, c] · y[·, lane],  which reads rows of q, k, v and dO without a
// transpose. Rows are first copied (16-bit ones are converted) to a fixed step of kHead elements: constant addresses,
// no cache aliasing.
#pragma once

#include "kernels/attention/cpu_blocks.h"
#include "kernels/common/math.h"
#include "kernels/cpu/scratch.h"

namespace isobar::cpu::ISOBAR_ISA {

// Rows [0, tokens) at a step of kHead elements, zeros up to kHead; `padding` more rows repeat the last one.
template <int kHead, class In, class T>
void copy_rows(const HeadRows<const In>& rows, int64_t tokens, int64_t padding, int64_t head_size, T* __restrict__ to) {
  for (int64_t t = 0; t < tokens + padding; ++t, to += kHead) {
    const In* from = rows[min(t, tokens - 1)];
    for (int64_t c = 0; c < head_size; ++c) to[c] = convert<T>(from[c]);
    for (int64_t c = head_size; c < kHead; ++c) to[c] = T{0};
  }
}

// The first `count` tokens as [head_size, kPanel]; lanes past count are zero.
template <class In, class T>
void transpose_rows(const HeadRows<const In>& rows, int64_t count, int64_t head_size, T* __restrict__ to) {
  for (int64_t lane = 0; lane < kPanel<T>; ++lane) {
    if (lane < count) {
      const In* from = rows[lane];
      for (int64_t c = 0; c < head_size; ++c) to[c * kPanel<T> + lane] = convert<T>(from[c]);
    } else {
      for (int64_t c = 0; c < head_size; ++c) to[c * kPanel<T> + lane] = T{0};
    }
  }
}

// acc[c, lane] = acc[c, lane] · rescale[lane] + Σ_r x[r·kHead + c] · y[r·kPanel + lane], r < count, c < head_size.
template <int kHead, class T>
void add_outer(const T* x, const T* y, int64_t count, int64_t head_size, const PanelVector<T>& rescale, T* acc) {
  for (int64_t c = 0; c < head_size; c += kTileRows) {
    Tile<T, kTileRows, kTileVectors> tile;
    tile.template load_from<kPanel<T>>(acc + c * kPanel<T>);
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) tile.c[i][v] *= rescale[v];
    tile.template multiply<1, kHead, kPanel<T>>(x + c, y, count);
    tile.template store_to<kPanel<T>>(acc + c * kPanel<T>);
  }
}

// ---- forward --------------------------------------------------------------------------------------------------------

// One thread's part: all keys of a (sample, head), and kQueryPanels panels of its queries.
template <class In_, class T_, int kHead>
class VectorForward {
 public:
  using In = In_;
  using T = T_;
  static_assert(kKeyBlock % kTileRows == 0 && 8 % kTileRows == 0);

  struct Panel {
    T q[kHead * kPanel<T>];  // [HS, lanes]
    T o[kHead * kPanel<T>];  // [HS, lanes], not yet divided by the sum
    RunningSoftmax<T> softmax;
  };
  struct Work {
    T scores[kKeyBlock * kPanel<T>];  // [keys, lanes]
    Panel panels[kQueryPanels];
  };

  explicit VectorForward(const AttentionFwdArgs& a)
      : a_(a),
        padding_(round_up(a.shape.kv_tokens, kTileRows) - a.shape.kv_tokens),
        work_(static_cast<Work*>(
            scratch(Scratch::attention, sizeof(Work) + 2 * (a.shape.kv_tokens + padding_) * kHead * sizeof(T)))),
        k_(reinterpret_cast<T*>(work_ + 1)),
        v_(k_ + (a.shape.kv_tokens + padding_) * kHead) {}

  T* scores() { return work_->scores; }
  Panel& panel(int64_t p) { return work_->panels[p]; }

  void load_keys(int64_t head_index) {
    const AttentionShape& s = a_.shape;
    const int64_t keys = s.kv_tokens;
    copy_rows<kHead>(head_rows<In>(a_.k, a_.k_stride, s, keys, head_index), keys, padding_, s.head_size, k_);
    copy_rows<kHead>(head_rows<In>(a_.v, a_.v_stride, s, keys, head_index), keys, 0, s.head_size, v_);
  }
  // Queries [first, first + lanes) of the rows.
  void load_queries(const HeadRows<const In>& q, int64_t first, int64_t lanes, Panel& panel) {
    transpose_rows(q.from(first), lanes, a_.shape.head_size, panel.q);
    for (T& value : panel.o) value = T{0};
  }

  // The panel's scores of keys [key, key + count), and the maximum per query.
  ISOBAR_INLINE void find_scores(const Panel& panel, int64_t key, int64_t count, PanelVector<T>& row_max) {
    for (Vector<T>& m : row_max) m = broadcast(-static_cast<T>(__builtin_inf()));
    for (int64_t i = 0; i < count; i += kTileRows) {
      Tile<T, kTileRows, kTileVectors> tile;
      tile.clear();
      tile.template multiply<kHead, 1, kPanel<T>>(k_ + (key + i) * kHead, panel.q, a_.shape.head_size);
      tile.template store_to<kPanel<T>>(scores() + i * kPanel<T>);
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) row_max[v] = max<T>(tile.c[r][v], row_max[v]);
    }
  }
  // O = O · rescale + P · V over the same keys; P has replaced the scores.
  ISOBAR_INLINE void add_output(Panel& panel, int64_t key, int64_t count, bool, const PanelVector<T>& rescale) {
    add_outer<kHead>(v_ + key * kHead, scores(), count, a_.shape.head_size, rescale, panel.o);
  }

 private:
  const AttentionFwdArgs& a_;
  int64_t padding_;  // keys
  Work* work_;
  T* k_;  // [keys, kHead]
  T* v_;
};

// ---- backward -------------------------------------------------------------------------------------------------------

// dq [rows, HS] += dS [rows, keys] · K [keys, HS], rows rounded up to whole tiles.
template <int kVectors, int kHead, class T>
ISOBAR_INLINE void add_dq_columns(const T* ds, const T* k, int64_t rows, int64_t keys, T* dq) {
  for (int64_t r = 0; r < rows; r += kTileRows) {
    Tile<T, kTileRows, kVectors> tile;
    tile.template load_from<kHead>(dq + r * kHead);
    tile.template multiply<kPanel<T>, 1, kHead>(ds + r * kPanel<T>, k, keys);
    tile.template store_to<kHead>(dq + r * kHead);
  }
}
template <int kHead, class T>
void add_dq(const T* ds, const T* k, int64_t rows, int64_t keys, int64_t head_size, T* dq) {
  int64_t c = 0;
  for (; head_size - c > 2 * kLanes<T>; c += 3 * kLanes<T>) add_dq_columns<3, kHead>(ds, k + c, rows, keys, dq + c);
  if (head_size - c > kLanes<T>)
    add_dq_columns<2, kHead>(ds, k + c, rows, keys, dq + c);
  else if (head_size > c)
    add_dq_columns<1, kHead>(ds, k + c, rows, keys, dq + c);
}

// out [rows, kPanel] = X [rows, HS] · Y [HS, lanes], rows rounded up to whole tiles.
template <int kHead, class T>
void product_rows(const T* x, const T* y, int64_t rows, int64_t head_size, T* out) {
  for (int64_t r = 0; r < rows; r += kTileRows) {
    Tile<T, kTileRows, kTileVectors> tile;
    tile.clear();
    tile.template multiply<kHead, 1, kPanel<T>>(x + r * kHead, y, head_size);
    tile.template store_to<kPanel<T>>(out + r * kPanel<T>);
  }
}

// One thread's part: all queries of a (sample, head), and one group of its keys at a time.
template <class In_, class T_, int kHead>
class VectorBackward {
 public:
  using In = In_;
  using T = T_;
  static constexpr int kGroup = kPanel<T>;  // keys that all queries are multiplied with at a time
  static constexpr int64_t dq_step(int64_t) { return kHead; }
  static_assert(kQueryBlock % kTileRows == 0);

  // dq [padded queries, dq_step] is added to; null: the thread's own.
  VectorBackward(const AttentionBwdArgs& a, T* dq) : a_(a), padded_(round_up(a.shape.q_tokens, kQueryBlock)) {
    const int64_t rows = padded_ * kHead;
    const int64_t elements = 2 * rows + 2 * padded_ + (dq == nullptr ? rows : 0);
    work_ = static_cast<Work*>(scratch(Scratch::attention, sizeof(Work) + elements * sizeof(T)));
    q_ = reinterpret_cast<T*>(work_ + 1);
    d_o_ = q_ + rows;
    terms_ = {.neg_lse = d_o_ + rows, .neg_delta = d_o_ + rows + padded_};
    dq_ = dq == nullptr ? terms_.neg_delta + padded_ : dq;
  }

  const T* dq() const { return dq_; }
  const T* dk() const { return work_->dk; }  // transposed, [HS, kGroup], without scale
  const T* dv() const { return work_->dv; }

  void load_queries(int64_t head_index) {
    const AttentionShape& s = a_.shape;
    const int64_t queries = s.q_tokens, padding = padded_ - queries;
    copy_rows<kHead>(head_rows<In>(a_.q, a_.q_stride, s, queries, head_index), queries, padding, s.head_size, q_);
    copy_rows<kHead>(head_rows<In>(a_.d_o, a_.do_stride, s, queries, head_index), queries, padding, s.head_size, d_o_);
    compute_delta<In>(a_, head_index, padded_, terms_);
    for (int64_t i = 0; i < padded_ * kHead; ++i) dq_[i] = T{0};
  }
  void load_keys(int64_t head_index, int64_t key, int64_t count) {
    const AttentionShape& s = a_.shape;
    const auto k = head_rows<In>(a_.k, a_.k_stride, s, s.kv_tokens, head_index).from(key);
    const auto v = head_rows<In>(a_.v, a_.v_stride, s, s.kv_tokens, head_index).from(key);
    transpose_rows(k, count, s.head_size, work_->k_transposed);
    transpose_rows(v, count, s.head_size, work_->v_transposed);
    copy_rows<kHead>(k, count, 0, s.head_size, work_->k);
    for (T& value : work_->dk) value = T{0};
    for (T& value : work_->dv) value = T{0};
  }

  // Queries [query, query + kQueryBlock) with the keys [key, key + keys) of the current group.
  __attribute__((noinline)) void add_block(int64_t head_index, int64_t query, int64_t key, int64_t keys) {
    Work& work = *work_;
    const int64_t head_size = a_.shape.head_size, count = min(kQueryBlock, a_.shape.q_tokens - query);
    const T* q = q_ + query * kHead;
    const T* d_o = d_o_ + query * kHead;
    product_rows<kHead>(q, work.k_transposed, count, head_size, work.p);
    product_rows<kHead>(d_o, work.v_transposed, count, head_size, work.ds);
    if (a_.dropout.p != 0)
      differentiate_dropped(head_index, query, count, key, keys);
    else
      differentiate(query, count);
    clear_hidden(head_index, query, count, key);
    PanelVector<T> one;
    for (Vector<T>& factor : one) factor = broadcast(T{1});
    add_outer<kHead>(d_o, work.p, count, head_size, one, work.dv);
    add_outer<kHead>(q, work.ds, count, head_size, one, work.dk);
    add_dq<kHead>(work.ds, work.k, count, keys, head_size, dq_ + query * kHead);
  }

 private:
  struct Work {
    T p[kQueryBlock * kGroup];  // [queries, keys]
    T ds[kQueryBlock * kGroup];
    T k[kGroup * kHead];             // [keys, kHead]
    T k_transposed[kHead * kGroup];  // [HS, keys]
    T v_transposed[kHead * kGroup];
    T dk[kHead * kGroup];  // sums so far, without scale
    T dv[kHead * kGroup];
  };

  // p: from scores to P; ds: from dP to dS = P∘(dP - delta).
  void differentiate(int64_t query, int64_t count) {
    const T log2_scale = static_cast<T>(a_.scale * kLog2E);
    const T* neg_lse = terms_.neg_lse + query;
    const T* neg_delta = terms_.neg_delta + query;
    for (int64_t r = 0; r < count; ++r)
      for (int64_t i = r * kGroup; i < (r + 1) * kGroup; i += kLanes<T>) {
        const Vector<T> p = exp2_of(load(work_->p + i) * log2_scale + neg_lse[r]);
        store(work_->p + i, p);
        store(work_->ds + i, p * (load(work_->ds + i) + neg_delta[r]));
      }
  }

  // The same with dropout: p becomes dropout(P), ds becomes P∘(dropout'(dP) - delta).
  void differentiate_dropped(int64_t head_index, int64_t query, int64_t count, int64_t key, int64_t keys) {
    const T log2_scale = static_cast<T>(a_.scale * kLog2E);
    T factors[kGroup] = {};
    for (int64_t r = 0; r < count; ++r) {
      draw_dropout(a_.dropout, score_index(a_.shape, a_.window, head_index, query + r, key), keys, factors);
      for (int64_t j = 0; j < kGroup; j += kLanes<T>) {
        const int64_t i = r * kGroup + j;
        const Vector<T> p = exp2_of(load(work_->p + i) * log2_scale + terms_.neg_lse[query + r]),
                        factor = load(factors + j);
        store(work_->p + i, p * factor);
        store(work_->ds + i, p * (load(work_->ds + i) * factor + terms_.neg_delta[query + r]));
      }
    }
  }

  // Sets P and dS of keys from `key` on to 0 if a query does not see them.
  void clear_hidden(int64_t head_index, int64_t query, int64_t count, int64_t key) {
    const KeyMask mask(a_, head_index);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t first = min(mask.first_of(query + r) - key, kGroup), seen = mask.keys_of(query + r) - key;
      for (int64_t j = 0; j < first; ++j) work_->p[r * kGroup + j] = work_->ds[r * kGroup + j] = T{0};
      for (int64_t j = seen < 0 ? 0 : seen; j < kGroup; ++j)
        work_->p[r * kGroup + j] = work_->ds[r * kGroup + j] = T{0};
    }
  }

  const AttentionBwdArgs& a_;
  int64_t padded_;  // queries, rounded up to whole blocks; rows past the last one repeat it
  Work* work_;
  T* q_;  // [padded, kHead]
  T* d_o_;
  QueryTerms<T> terms_;
  T* dq_;  // [padded, kHead], sum so far, without scale
};

}  // namespace isobar::cpu::ISOBAR_ISA
