// Shared by the two implementations of attention on the CPU (kernels/attention/cpu_vectors.h and
// kernels/attention/cpu_bf16.h): the position of a head's tokens, and the work between the matrix products: softmax and
// dropout of a block of scores.
//
// In the forward pass the lanes of a block are queries, so that the softmax of a query is elementwise along its lane;
// in the backward pass they are keys. A score times `log2_scale`, scale · log2(e), is the logarithm of P to base 2.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/common/math.h"
#include "kernels/common/rng.h"
#include "kernels/cpu/simd.h"

namespace isobar::cpu::ISOBAR_ISA {

using std::int64_t;

inline constexpr double kLog2E = 1.4426950408889634;

inline constexpr int kKeyBlock = 64;    // keys at a time in the forward pass
inline constexpr int kQueryPanels = 4;  // panels of queries that share a block of keys in the forward pass
inline constexpr int kQueryBlock = 64;  // queries at a time in the backward pass

// The tokens of one head of one sample. head_index = sample · NH + head.
template <class In>
struct HeadRows {
  In* data;
  int64_t stride;  // elements between tokens

  HeadRows(In* base, int64_t stride_, const AttentionShape& s, int64_t tokens, int64_t head_index)
      : data(base + head_index / s.heads * tokens * stride_ + head_index % s.heads * s.head_size), stride(stride_) {}
  In* operator[](int64_t token) const { return data + token * stride; }
  HeadRows from(int64_t token) const {
    HeadRows rest = *this;
    rest.data += token * stride;
    return rest;
  }
};
template <class In>
HeadRows<const In> head_rows(const void* base, int64_t stride, const AttentionShape& s, int64_t tokens,
                             int64_t head_index) {
  return {static_cast<const In*>(base), stride, s, tokens, head_index};
}
template <class In>
HeadRows<In> head_rows(void* base, int64_t stride, const AttentionShape& s, int64_t tokens, int64_t head_index) {
  return {static_cast<In*>(base), stride, s, tokens, head_index};
}

// Calls f(Type<Out>{}) with the type of an output: the operands' or the accumulator's.
template <class In, class T, class F>
ISOBAR_INLINE void visit_output(DType dtype, const F& f) {
  if constexpr (sizeof(In) != sizeof(T)) {
    if (dtype == dtype_of<T>) return f(Type<T>{});
  }
  f(Type<In>{});
}

// Row `lane` of an output from its transpose [head_size, step].
template <int kStep, class T, class Out>
void write_lane(const T* __restrict__ transposed, int64_t lane, int64_t head_size, T factor, Grad mode,
                Out* __restrict__ to) {
  if (mode == Grad::accumulate)
    for (int64_t c = 0; c < head_size; ++c)
      to[c] = convert<Out>(convert<T>(to[c]) + transposed[c * kStep + lane] * factor);
  else
    for (int64_t c = 0; c < head_size; ++c) to[c] = static_cast<Out>(transposed[c * kStep + lane] * factor);
}

// ---- which keys a query sees ---------------------------------------------------------------------------------------

// Of one head: query i of a call sees its keys [first_of(i), keys_of(i)), neither of which decreases with i. Key j is
// seen by some of the queries [first_query(j), end_query(j)).
struct KeyMask {
  int64_t diagonal, queries, keys, first_key;
  const std::int32_t *begin, *end;  // of this sample; may be null

  template <class Attention>
  KeyMask(const Attention& a, int64_t head_index)
      : diagonal(attention_diagonal(a)),
        queries(a.shape.q_tokens),
        keys(a.shape.kv_tokens),
        first_key(a.window.keys.first),
        begin(of_sample(a.keys.begin, a.shape, head_index)),
        end(of_sample(a.keys.end, a.shape, head_index)) {}

  // Of a query past the last one: those of the last one.
  int64_t first_of(int64_t query) const {
    return begin == nullptr ? 0 : clamp(begin[min(query, queries - 1)] - first_key, keys);
  }
  int64_t keys_of(int64_t query) const {
    const int64_t seen = clamp(query + diagonal + 1, keys);
    return end == nullptr ? seen : min(seen, clamp(end[min(query, queries - 1)] - first_key, keys));
  }
  bool sees_one(int64_t query) const { return first_of(query) < keys_of(query); }

  int64_t first_query(int64_t key) const {
    const int64_t query = clamp(key - diagonal, queries);
    return end == nullptr ? query : std::max(query, first_above(end, key));
  }
  int64_t end_query(int64_t key) const { return begin == nullptr ? queries : first_above(begin, key); }

 private:
  static int64_t clamp(int64_t count, int64_t most) { return count < 0 ? 0 : min(count, most); }
  // The first query whose limit lies behind the key.
  int64_t first_above(const std::int32_t* limits, int64_t key) const {
    return std::upper_bound(limits, limits + queries, key + first_key) - limits;
  }
  static const std::int32_t* of_sample(const std::int32_t* limits, const AttentionShape& s, int64_t head_index) {
    return limits == nullptr ? nullptr : limits + head_index / s.heads * s.q_tokens;
  }
};

// x [keys, lanes] for keys from `key` on and queries from `query` on: writes `hidden` if the query does not see the
// key.
template <class T>
void apply_mask(const KeyMask& mask, int64_t query, int64_t key, int64_t keys, T hidden, T* x) {
  for (int64_t lane = 0; lane < kPanel<T>; ++lane) {
    const int64_t first = min(mask.first_of(query + lane) - key, keys), seen = mask.keys_of(query + lane) - key;
    for (int64_t j = 0; j < first; ++j) x[j * kPanel<T> + lane] = hidden;
    for (int64_t j = seen < 0 ? 0 : seen; j < keys; ++j) x[j * kPanel<T> + lane] = hidden;
  }
}

// ---- dropout --------------------------------------------------------------------------------------------------------

// The index of a score in the whole P of the global batch, which decides whether it is dropped.
inline std::uint64_t score_index(const AttentionShape& s, const AttentionWindow& w, int64_t head_index, int64_t query,
                                 int64_t key) {
  const int64_t sample = w.samples.at(head_index / s.heads), head = w.heads.first + head_index % s.heads;
  const int64_t row = (sample * w.heads.total + head) * w.queries.total + w.queries.first + query;
  return static_cast<std::uint64_t>(row * w.keys.total + w.keys.first + key);
}

// The factors of `count` scores from element `first` on: 0, or 1/(1 - p).
template <class T>
__attribute__((flatten)) void draw_dropout(const AttentionDropout& dropout, std::uint64_t first, int64_t count,
                                           T* __restrict__ factors) {
  const std::uint32_t threshold = drop_threshold(dropout.p);
  const T kept = T{1} / (T{1} - static_cast<T>(dropout.p));
  const std::uint64_t stream = mask_stream(dropout.stream, dropout.stream_offset);
  for (int64_t i = 0; i < count;) {
    const std::uint64_t index = first + static_cast<std::uint64_t>(i);
    const Philox4 bits = philox4x32(dropout.seed, stream, index / 4);
    for (std::uint64_t word = index % 4; word < 4 && i < count; ++word, ++i)
      factors[i] = bits.word[word] < threshold ? T{0} : kept;
  }
}

// The elements of the whole P for a panel of queries: lane i, key j of a block is first + i · row + j.
struct PanelDropout {
  const AttentionDropout& dropout;
  std::uint64_t first;
  int64_t row, lanes;
};
// p [keys, lanes], in place.
template <class T>
void drop(const PanelDropout& d, int64_t keys, T* __restrict__ p) {
  T factors[kKeyBlock];
  for (int64_t lane = 0; lane < d.lanes; ++lane) {
    draw_dropout(d.dropout, d.first + lane * d.row, keys, factors);
    for (int64_t j = 0; j < keys; ++j) p[j * kPanel<T> + lane] *= factors[j];
  }
}

// ---- softmax of the forward pass ------------------------------------------------------------------------------------

// One vector for each vector of a panel.
template <class T>
using PanelVector = Vector<T>[kTileVectors];

// The softmax of a panel's queries over the keys so far.
template <class T>
struct RunningSoftmax {
  PanelVector<T> running_max;  // subtracted from the scores: their maximum so far, or up to kSlack less
  PanelVector<T> sum;          // Σ 2^(score - running_max)
};

// Scores of a panel may exceed the running maximum by this much (a factor 2^8 in P); then it is raised.
inline constexpr int kSlack = 8;

template <class T>
bool any_above(const PanelVector<T>& a, const PanelVector<T>& limit, T slack) {
  bool above = false;
  for (int v = 0; v < kTileVectors; ++v)
    for (int lane = 0; lane < kLanes<T>; ++lane) above |= a[v][lane] > limit[v][lane] + slack;
  return above;
}

// Online softmax: raises the running maximum if a new score exceeds it by more than kSlack, and rescales the sums.
// row_max: the maxima of the new scores. The caller multiplies the previous output by `rescale`, which is 1 everywhere
// if this returns false.
template <class T>
ISOBAR_INLINE bool rescale_running_max(const PanelVector<T>& row_max, bool first, RunningSoftmax<T>& softmax,
                                       PanelVector<T>& rescale) {
  for (Vector<T>& factor : rescale) factor = broadcast(T{1});
  if (first) {
    for (int v = 0; v < kTileVectors; ++v) softmax.running_max[v] = row_max[v];
    return false;
  }
  if (!any_above(row_max, softmax.running_max, T{kSlack})) return false;
  for (int v = 0; v < kTileVectors; ++v) {
    const Vector<T> raised = max<T>(row_max[v], softmax.running_max[v]);
    rescale[v] = exp2_of(softmax.running_max[v] - raised);
    softmax.sum[v] *= rescale[v];
    softmax.running_max[v] = raised;
  }
  return true;
}

// Turns scores [keys, lanes] into 2^(score · log2_scale - running_max), in place; adds them to the sums.
template <class T>
ISOBAR_INLINE void exponentiate(T* __restrict__ scores, int64_t keys, T log2_scale, RunningSoftmax<T>& softmax) {
  PanelVector<T> total, running_max;
  for (int v = 0; v < kTileVectors; ++v) {
    total[v] = softmax.sum[v];
    running_max[v] = softmax.running_max[v];
  }
  for (int64_t key = 0; key < keys; ++key) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      T* at = scores + key * kPanel<T> + v * kLanes<T>;
      const Vector<T> p = exp2_of(load(at) * log2_scale - running_max[v]);
      total[v] += p;
      store(at, p);
    }
  }
  for (int v = 0; v < kTileVectors; ++v) softmax.sum[v] = total[v];
}

// ---- backward -------------------------------------------------------------------------------------------------------

// Two numbers per query that the backward pass needs, for `padded` queries: those past the last one repeat it.
template <class T>
struct QueryTerms {
  T* neg_lse;    // -lse · log2(e)
  T* neg_delta;  // -Σ dO · O
};
template <class In, class T>
void compute_delta(const AttentionBwdArgs& a, int64_t head_index, int64_t padded, const QueryTerms<T>& terms) {
  const AttentionShape& s = a.shape;
  const auto d_o = head_rows<In>(a.d_o, a.do_stride, s, s.q_tokens, head_index);
  const T* lse = static_cast<const T*>(a.lse) + head_index * s.q_tokens;
  visit_output<In, T>(a.o_dtype, [&]<class Out>(Type<Out>) {
    const auto o = head_rows<Out>(a.o, a.o_stride, s, s.q_tokens, head_index);
    for (int64_t t = 0; t < padded; ++t) {
      const int64_t token = min(t, s.q_tokens - 1);
      T delta = 0;
      for (int64_t c = 0; c < s.head_size; ++c) delta += convert<T>(o[token][c]) * convert<T>(d_o[token][c]);
      terms.neg_delta[t] = -delta;
      terms.neg_lse[t] = -lse[token] * static_cast<T>(kLog2E);
    }
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA
