// Both passes work on blocks of scores that stay in the caches. This file holds the order of the blocks and how threads
// share them; the products are those of kernels/attention/cpu_vectors.h, or of kernels/attention/cpu_amx.h for bf16 on a CPU with
// AMX.
#include "kernels/attention/attention.h"

#include <cstdint>

#include "kernels/attention/cpu_amx.h"
#include "kernels/attention/cpu_blocks.h"
#include "kernels/attention/cpu_vectors.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

// ---- forward --------------------------------------------------------------------------------------------------------

// One block of keys, [key, key + count), for one panel of queries.
template <class Products>
__attribute__((noinline)) void attend(Products& products, typename Products::Panel& panel, int64_t key, int64_t count,
                                      typename Products::T unit, const PanelDropout& dropout) {
  using T = typename Products::T;
  PanelVector<T> most, rescale;
  products.find_scores(panel, key, count, most);
  for (Vector<T>& m : most) m *= unit;
  const bool rescales = follow(most, key == 0, panel.softmax, rescale);
  exponentiate(products.scores(), count, unit, panel.softmax);
  if (dropout.dropout.p != 0) drop(dropout, count, products.scores());
  products.add_output(panel, key, count, rescales, rescale);
}

// Queries [query, query + kQueryPanels panels) of a (batch, head), whose keys `products` holds.
template <class Products>
void forward_block(const AttentionFwd& a, int64_t pair, int64_t query, Products& products) {
  using In = typename Products::In;
  using T = typename Products::T;
  const AttentionShape& s = a.shape;
  const int64_t queries = s.q_tokens, keys = s.kv_tokens;
  const auto q = rows_of<In>(a.q, a.q_stride, s, queries, pair);
  const auto o = rows_of<In>(a.o, a.o_stride, s, queries, pair);
  T* lse = static_cast<T*>(a.lse) + pair * queries;
  const T unit = static_cast<T>(a.scale * kLog2E);
  const int64_t panels = least(kQueryPanels, ceil_div(queries - query, kPanel<T>));
  const auto first_of = [&](int64_t p) { return query + p * kPanel<T>; };
  const auto lanes_of = [&](int64_t p) { return least(kPanel<T>, queries - first_of(p)); };

  for (int64_t p = 0; p < panels; ++p) {
    products.take_queries(q, first_of(p), lanes_of(p), products.panel(p));
    for (int v = 0; v < kTileVectors; ++v) products.panel(p).softmax.sum[v] = Vector<T>{};
  }
  for (int64_t key = 0; key < keys; key += kKeyBlock)
    for (int64_t p = 0; p < panels; ++p) {
      attend(
          products, products.panel(p), key, least(kKeyBlock, keys - key), unit,
          {.dropout = a.dropout, .first = score_index(s, pair, first_of(p), key), .row = keys, .lanes = lanes_of(p)});
    }
  for (int64_t p = 0; p < panels; ++p) {
    const auto& panel = products.panel(p);
    for (int64_t lane = 0; lane < lanes_of(p); ++lane) {
      const T sum = panel.softmax.sum[lane / kLanes<T>][lane % kLanes<T>];
      const T reference = panel.softmax.reference[lane / kLanes<T>][lane % kLanes<T>];
      write_lane<kPanel<T>>(panel.o, lane, s.head_size, T{1} / sum, o[first_of(p) + lane]);
      lse[first_of(p) + lane] = static_cast<T>((reference + __builtin_log2(sum)) / kLog2E);
    }
  }
}

template <class Products>
void forward(const AttentionFwd& a) {
  constexpr int64_t kQueries = kQueryPanels * kPanel<typename Products::T>;
  const int64_t blocks = ceil_div(a.shape.q_tokens, kQueries);
  parallel_for(a.shape.batch * a.shape.heads * blocks, 1, [&](int64_t begin, int64_t end) {
    Products products(a);
    int64_t taken = -1;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t pair = item / blocks;
      if (pair != taken) products.take_keys(pair);
      taken = pair;
      forward_block(a, pair, item % blocks * kQueries, products);
    }
  });
}

// ---- backward -------------------------------------------------------------------------------------------------------

template <class Products>
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
  using In = typename Products::In;
  using T = typename Products::T;
  static constexpr int kGroup = Products::kGroup;

  explicit Backward(const AttentionBwd& a)
      : a_(a), groups_(ceil_div(a.shape.kv_tokens, kGroup)), dq_step_(Products::dq_step(a.shape.head_size)) {}

  int64_t dq_size() const { return round_up(a_.shape.q_tokens, kQueryBlock) * dq_step_; }

  // Key groups [begin, end) of one (batch, head): writes their dk and dv; dq goes to `partial_dq`, or out when null.
  void run_pair(int64_t pair, int64_t begin, int64_t end, T* partial_dq) const {
    Products products(a_, partial_dq);
    products.take_queries(pair);
    for (int64_t group = begin; group < end; ++group) run_group(pair, group * kGroup, products);
    if (partial_dq == nullptr) write_dq(pair, products.dq());
  }

  // All queries against keys [key, key + kGroup).
  void run_group(int64_t pair, int64_t key, Products& products) const {
    const AttentionShape& s = a_.shape;
    const int64_t count = least(kGroup, s.kv_tokens - key);
    products.take_keys(pair, key, count);
    for (int64_t query = 0; query < s.q_tokens; query += kQueryBlock) products.add_block(pair, query, key, count);
    const auto dk = rows_of<In>(a_.dk, a_.dk_stride, s, s.kv_tokens, pair);
    const auto dv = rows_of<In>(a_.dv, a_.dv_stride, s, s.kv_tokens, pair);
    for (int64_t lane = 0; lane < count; ++lane) {
      write_lane<kGroup>(products.dk(), lane, s.head_size, static_cast<T>(a_.scale), dk[key + lane]);
      write_lane<kGroup>(products.dv(), lane, s.head_size, T{1}, dv[key + lane]);
    }
  }

  void write_dq(int64_t pair, const T* dq) const {
    const AttentionShape& s = a_.shape;
    const auto out = rows_of<In>(a_.dq, a_.dq_stride, s, s.q_tokens, pair);
    for (int64_t t = 0; t < s.q_tokens; ++t) {
      In* to = out[t];
      for (int64_t c = 0; c < s.head_size; ++c)
        to[c] = static_cast<In>(dq[t * dq_step_ + c] * static_cast<T>(a_.scale));
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
  int64_t dq_step_;
};

// ---- choice of the products -----------------------------------------------------------------------------------------

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
#if defined(ISOBAR_ISA_IS_avx512)
  if (a.dtype == DType::bf16 && amx() == Amx::present) return forward<AmxForward<AmxTiles>>(a);
  if (a.dtype == DType::bf16 && amx() == Amx::emulated) return forward<AmxForward<EmulatedTiles>>(a);
#endif
  visit_floating(a.dtype, [&](auto type) {
    using In = typename decltype(type)::type;
    with_step(a.shape.head_size, [&](auto step) { forward<VectorForward<In, accumulator_t<In>, step.value>>(a); });
  });
}

void attention_bwd(const AttentionBwd& a) {
#if defined(ISOBAR_ISA_IS_avx512)
  if (a.dtype == DType::bf16 && amx() == Amx::present) return Backward<AmxBackward<AmxTiles>>::run(a);
  if (a.dtype == DType::bf16 && amx() == Amx::emulated) return Backward<AmxBackward<EmulatedTiles>>::run(a);
#endif
  visit_floating(a.dtype, [&](auto type) {
    using In = typename decltype(type)::type;
    with_step(a.shape.head_size,
              [&](auto step) { Backward<VectorBackward<In, accumulator_t<In>, step.value>>::run(a); });
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(attention_fwd, AttentionFwd)
ISOBAR_CPU_KERNEL(attention_bwd, AttentionBwd)
