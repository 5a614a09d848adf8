// Both passes work on blocks of scores that stay in the caches. This file has the order of the blocks and their
// distribution over threads. The matrix products are in an `Arithmetic`: a class of kernels/attention/cpu_vectors.h,
// or, for bf16 on a CPU with AMX or AVX512_BF16, of kernels/attention/cpu_bf16.h.
#include "kernels/attention/attention.h"

#include <cstdint>
#include <limits>

#include "kernels/attention/cpu_bf16.h"
#include "kernels/attention/cpu_blocks.h"
#include "kernels/attention/cpu_vectors.h"
#include "kernels/common/math.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

// ---- forward --------------------------------------------------------------------------------------------------------

// The maximum per lane of scores [keys, lanes], or the lowest number.
template <class T>
void find_maxima(const T* scores, int64_t keys, PanelVector<T>& row_max) {
  for (Vector<T>& m : row_max) m = broadcast(std::numeric_limits<T>::lowest());
  for (int64_t i = 0; i < keys; ++i)
    for (int v = 0; v < kTileVectors; ++v)
      row_max[v] = max<T>(load(scores + i * kPanel<T> + v * kLanes<T>), row_max[v]);
}

// One block of keys, [key, key + count), for one panel of queries from `query` on. is_first: of the panel's blocks.
template <class Arithmetic>
__attribute__((noinline)) void attend(Arithmetic& arithmetic, typename Arithmetic::Panel& panel, int64_t query,
                                      int64_t key, int64_t count, bool is_first, typename Arithmetic::T log2_scale,
                                      const KeyMask& mask, const PanelDropout& dropout) {
  using T = typename Arithmetic::T;
  const bool hides = mask.keys_of(query) < key + count || mask.first_of(query + kPanel<T> - 1) > key;
  PanelVector<T> row_max, rescale;
  arithmetic.find_scores(panel, key, count, row_max);
  if (hides) {
    apply_mask(mask, query, key, count, -static_cast<T>(__builtin_inf()), arithmetic.scores());
    find_maxima(arithmetic.scores(), count, row_max);
  }
  for (Vector<T>& m : row_max) m *= log2_scale;
  // A query that sees no key of the block has a finite maximum: with -inf its sum would be NaN, -inf - -inf.
  if (hides)
    for (Vector<T>& m : row_max) m = max<T>(m, broadcast(std::numeric_limits<T>::lowest() / 2));
  const bool rescales = rescale_running_max(row_max, is_first, panel.softmax, rescale);
  exponentiate(arithmetic.scores(), count, log2_scale, panel.softmax);
  // After exp2_of, a hidden key may have the weight 2^-126. In a sum with keys that are seen it is nothing; of a query
  // that sees none nothing reads the sum.
  if (hides) apply_mask(mask, query, key, count, T{0}, arithmetic.scores());
  if (dropout.dropout.p != 0) drop(dropout, count, arithmetic.scores());
  arithmetic.add_output(panel, key, count, rescales, rescale);
}

// Queries [query, query + kQueryPanels panels) of a (sample, head); `arithmetic` holds its keys.
template <class Arithmetic>
void forward_block(const AttentionFwdArgs& a, int64_t head_index, int64_t query, Arithmetic& arithmetic) {
  using In = typename Arithmetic::In;
  using T = typename Arithmetic::T;
  const AttentionShape& s = a.shape;
  const int64_t queries = s.q_tokens, keys = s.kv_tokens;
  const auto q = head_rows<In>(a.q, a.q_stride, s, queries, head_index);
  T* lse = static_cast<T*>(a.lse) + head_index * queries;
  const T log2_scale = static_cast<T>(a.scale * kLog2E);
  const KeyMask mask(a, head_index);
  const int64_t panels = min(kQueryPanels, ceil_div(queries - query, kPanel<T>));
  const auto first_of = [&](int64_t p) { return query + p * kPanel<T>; };
  const auto lanes_of = [&](int64_t p) { return min(kPanel<T>, queries - first_of(p)); };

  for (int64_t p = 0; p < panels; ++p) {
    arithmetic.load_queries(q, first_of(p), lanes_of(p), arithmetic.panel(p));
    for (int v = 0; v < kTileVectors; ++v) arithmetic.panel(p).softmax.sum[v] = Vector<T>{};
  }
  // Of a panel: always a block, even if no query sees one.
  const auto first_block = [&](int64_t p) { return min(mask.first_of(first_of(p)), keys - 1) / kKeyBlock * kKeyBlock; };
  for (int64_t key = first_block(0); key < keys; key += kKeyBlock)
    for (int64_t p = 0; p < panels; ++p) {
      const bool is_first = key == first_block(p);
      if (key < first_block(p) || (!is_first && key >= mask.keys_of(first_of(p) + lanes_of(p) - 1))) continue;
      attend(arithmetic, arithmetic.panel(p), first_of(p), key, min(kKeyBlock, keys - key), is_first, log2_scale, mask,
             {.dropout = a.dropout,
              .first = score_index(s, a.window, head_index, first_of(p), key),
              .row = a.window.keys.total,
              .lanes = lanes_of(p)});
    }
  for (int64_t p = 0; p < panels; ++p) {
    const auto& panel = arithmetic.panel(p);
    for (int64_t lane = 0; lane < lanes_of(p); ++lane) {
      const T sum = panel.softmax.sum[lane / kLanes<T>][lane % kLanes<T>];
      const T running_max = panel.softmax.running_max[lane / kLanes<T>][lane % kLanes<T>];
      const bool sees = mask.sees_one(first_of(p) + lane);
      visit_output<In, T>(a.o_dtype, [&]<class Out>(Type<Out>) {
        const auto o = head_rows<Out>(a.o, a.o_stride, s, queries, head_index);
        write_lane<kPanel<T>>(panel.o, lane, s.head_size, sees ? T{1} / sum : T{0}, Grad::overwrite,
                              o[first_of(p) + lane]);
      });
      const double log2_sum = sees ? running_max + __builtin_log2(sum) : -__builtin_inf();
      lse[first_of(p) + lane] = static_cast<T>(log2_sum / kLog2E);
    }
  }
}

template <class Arithmetic>
void forward(const AttentionFwdArgs& a) {
  constexpr int64_t kQueries = kQueryPanels * kPanel<typename Arithmetic::T>;
  const int64_t blocks = ceil_div(a.shape.q_tokens, kQueries);
  parallel_for(a.shape.batch * a.shape.heads * blocks, 1, [&](int64_t begin, int64_t end) {
    Arithmetic arithmetic(a);
    int64_t loaded = -1;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t head_index = item / blocks, block = item % blocks;
      if (head_index != loaded) arithmetic.load_keys(head_index);
      loaded = head_index;
      // From both ends, so that any run of blocks sees the same number of keys.
      const int64_t turn = !a.causal ? block : block % 2 == 0 ? block / 2 : blocks - 1 - block / 2;
      forward_block(a, head_index, turn * kQueries, arithmetic);
    }
  });
}

// ---- backward -------------------------------------------------------------------------------------------------------

template <class Arithmetic>
class Backward {
 public:
  static void run(const AttentionBwdArgs& a) {
    const Backward backward(a);
    const int64_t head_count = a.shape.batch * a.shape.heads, items = head_count * backward.groups_;
    const int64_t parts = min(omp_get_max_threads(), items);
    // A part is a run of key groups. If a part has only some groups of a (sample, head), its dQ goes to a slot of
    // `partial`: slot 2·part for the first head of the part, 2·part + 1 for the last. The slots are then summed in the
    // order of parts.
    T* partial = nullptr;
    if (head_count % parts != 0)
      partial = static_cast<T*>(scratch(Scratch::attention_shared, 2 * parts * backward.dq_size() * sizeof(T)));
    parallel_for(parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        const int64_t begin = items * part / parts, end = items * (part + 1) / parts;
        for (int64_t item = begin; item < end;) {
          const int64_t head_index = item / backward.groups_;
          const int64_t stop = min((head_index + 1) * backward.groups_, end);
          const bool whole = stop - item == backward.groups_;
          const int64_t slot = 2 * part + (item == begin ? 0 : 1);
          backward.run_head(head_index, item % backward.groups_, stop - head_index * backward.groups_,
                            whole ? nullptr : partial + slot * backward.dq_size());
          item = stop;
        }
      }
    });
    if (partial == nullptr) return;
    parallel_for(head_count, 1, [&](int64_t first, int64_t last) {
      for (int64_t head_index = first; head_index < last; ++head_index)
        backward.sum_partial(head_index, items, parts, partial);
    });
  }

 private:
  using In = typename Arithmetic::In;
  using T = typename Arithmetic::T;
  static constexpr int kGroup = Arithmetic::kGroup;

  explicit Backward(const AttentionBwdArgs& a)
      : a_(a), groups_(ceil_div(a.shape.kv_tokens, kGroup)), dq_step_(Arithmetic::dq_step(a.shape.head_size)) {}

  int64_t dq_size() const { return round_up(a_.shape.q_tokens, kQueryBlock) * dq_step_; }

  // Key groups [begin, end) of one (sample, head): writes their dk and dv; dq goes to `partial_dq`, or to the output if
  // null.
  void run_head(int64_t head_index, int64_t begin, int64_t end, T* partial_dq) const {
    Arithmetic arithmetic(a_, partial_dq);
    arithmetic.load_queries(head_index);
    for (int64_t group = begin; group < end; ++group) run_group(head_index, group * kGroup, arithmetic);
    if (partial_dq == nullptr) write_dq(head_index, arithmetic.dq());
  }

  // All queries with keys [key, key + kGroup).
  void run_group(int64_t head_index, int64_t key, Arithmetic& arithmetic) const {
    const AttentionShape& s = a_.shape;
    const int64_t count = min(kGroup, s.kv_tokens - key);
    arithmetic.load_keys(head_index, key, count);
    const KeyMask mask(a_, head_index);
    const int64_t first = mask.first_query(key) / kQueryBlock * kQueryBlock, end = mask.end_query(key + count - 1);
    for (int64_t query = first; query < end; query += kQueryBlock) arithmetic.add_block(head_index, query, key, count);
    visit_output<In, T>(a_.grad_dtype, [&]<class Out>(Type<Out>) {
      const auto dk = head_rows<Out>(a_.dk, a_.dk_stride, s, s.kv_tokens, head_index);
      const auto dv = head_rows<Out>(a_.dv, a_.dv_stride, s, s.kv_tokens, head_index);
      for (int64_t lane = 0; lane < count; ++lane) {
        write_lane<kGroup>(arithmetic.dk(), lane, s.head_size, static_cast<T>(a_.scale), a_.dkv_mode, dk[key + lane]);
        write_lane<kGroup>(arithmetic.dv(), lane, s.head_size, T{1}, a_.dkv_mode, dv[key + lane]);
      }
    });
  }

  void write_dq(int64_t head_index, const T* dq) const {
    const AttentionShape& s = a_.shape;
    visit_output<In, T>(a_.grad_dtype, [&]<class Out>(Type<Out>) {
      const auto out = head_rows<Out>(a_.dq, a_.dq_stride, s, s.q_tokens, head_index);
      for (int64_t t = 0; t < s.q_tokens; ++t)
        write_lane<1>(dq + t * dq_step_, 0, s.head_size, static_cast<T>(a_.scale), a_.dq_mode, out[t]);
    });
  }

  // Adds the partial dq of a head that several parts have, in the order of the parts.
  void sum_partial(int64_t head_index, int64_t items, int64_t parts, T* partial) const {
    T* total = nullptr;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = items * part / parts, end = items * (part + 1) / parts;
      const int64_t first = begin > head_index * groups_ ? begin : head_index * groups_,
                    last = min(end, (head_index + 1) * groups_);
      if (first >= last || last - first == groups_) continue;
      T* dq = partial + (2 * part + (first == begin ? 0 : 1)) * dq_size();
      if (total == nullptr)
        total = dq;
      else
        for (int64_t i = 0; i < dq_size(); ++i) total[i] += dq[i];
    }
    if (total != nullptr) write_dq(head_index, total);
  }

  const AttentionBwdArgs& a_;
  int64_t groups_;  // of keys
  int64_t dq_step_;
};

// ---- choice of the arithmetic ---------------------------------------------------------------------------------------

// Calls f with the smallest row step that fits a head.
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

#if defined(ISOBAR_ISA_IS_avx512)
bool adds_pairs(DType dtype) {
  return dtype == DType::bf16 && bf16_products() != Bf16Products::widened;
}
// Calls f with the class for products of bf16.
template <class F>
void with_products(const F& f) {
  switch (bf16_products()) {
    case Bf16Products::tiles:
      return f(Type<AmxTiles>{});
    case Bf16Products::emulated_tiles:
      return f(Type<EmulatedTiles>{});
    case Bf16Products::pairs:
      return f(Type<Pairs>{});
    default:
      return f(Type<EmulatedPairs>{});
  }
}
#endif

}  // namespace

void attention_fwd(const AttentionFwdArgs& arguments) {
  const AttentionFwdArgs a = checked_attention(arguments);
#if defined(ISOBAR_ISA_IS_avx512)
  if (adds_pairs(a.dtype))
    return with_products([&]<class Products>(Type<Products>) { forward<Bf16Forward<Products>>(a); });
#endif
  visit_floating(a.dtype, [&]<class In>(Type<In>) {
    with_step(a.shape.head_size, [&](auto step) { forward<VectorForward<In, accumulator_t<In>, step.value>>(a); });
  });
}

void attention_bwd(const AttentionBwdArgs& arguments) {
  const AttentionBwdArgs a = checked_attention(arguments);
#if defined(ISOBAR_ISA_IS_avx512)
  if (adds_pairs(a.dtype))
    return with_products([&]<class Products>(Type<Products>) { Backward<Bf16Backward<Products>>::run(a); });
#endif
  visit_floating(a.dtype, [&]<class In>(Type<In>) {
    with_step(a.shape.head_size,
              [&](auto step) { Backward<VectorBackward<In, accumulator_t<In>, step.value>>::run(a); });
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(attention_fwd, AttentionFwdArgs)
ISOBAR_CPU_KERNEL(attention_bwd, AttentionBwdArgs)
