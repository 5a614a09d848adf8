// The products of attention in bf16, with instructions that add pairs of terms: AMX tiles (kernels/cpu/amx.h), or
// AVX512_BF16 (kernels/cpu/pairs.h). Scores, softmax and sums are fp32 vectors, as elsewhere; P and dS are rounded to
// bf16 before they enter a product. Both kinds of instruction need pairs of rows of the second operand interleaved. The
// block of scores is interleaved lane by lane, so no product needs a transpose of another one's result.
//
// Tokens are copied to padded rows, so that blocks of a product divide the row size (zeros past the head). A thread
// does this once per (sample, head).
#pragma once

#include "kernels/attention/cpu_blocks.h"
#include "kernels/common/math.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/scratch.h"

#if defined(ISOBAR_ISA_IS_avx512)

namespace isobar::cpu::ISOBAR_ISA {

inline constexpr int kMaxHead = 128;

// The first `count` rows at a step of `width` elements; zeros past the head and past count, up to `rows`.
inline void copy_padded(const HeadRows<const bf16>& from, int64_t count, int64_t rows, int64_t head_size, int64_t width,
                        bf16* to) {
  for (int64_t t = 0; t < rows; ++t, to += width) {
    const int64_t used = t < count ? head_size : 0;
    if (used != 0) __builtin_memcpy(to, from[t], static_cast<std::size_t>(used) * sizeof(bf16));
    __builtin_memset(to + used, 0, static_cast<std::size_t>(width - used) * sizeof(bf16));
  }
}
// The same rows as columns, [height, step], with `step` columns.
inline void transpose_padded(const HeadRows<const bf16>& from, int64_t count, int64_t head_size, int64_t height,
                             int64_t step, bf16* to) {
  __builtin_memset(to, 0, static_cast<std::size_t>(height * step) * sizeof(bf16));
  for (int64_t t = 0; t < count; ++t)
    for (int64_t c = 0; c < head_size; ++c) to[c * step + t] = from[t][c];
}
// The same columns with pairs of rows interleaved, [height / 2, step, 2].
inline void transpose_interleaved(const HeadRows<const bf16>& from, int64_t count, int64_t head_size, int64_t height,
                                  int64_t step, bf16* to) {
  __builtin_memset(to, 0, static_cast<std::size_t>(height * step) * sizeof(bf16));
  for (int64_t t = 0; t < count; ++t)
    for (int64_t c = 0; c < head_size; c += 2) __builtin_memcpy(to + c * step + 2 * t, from[t] + c, 4);
}
// The rows themselves with pairs interleaved, [rows / 2, width, 2].
inline void interleave_padded(const HeadRows<const bf16>& from, int64_t count, int64_t rows, int64_t head_size,
                              int64_t width, bf16* to) {
  __builtin_memset(to, 0, static_cast<std::size_t>(rows * width) * sizeof(bf16));
  for (int64_t t = 0; t < count; ++t)
    for (int64_t c = 0; c < head_size; ++c) to[t / 2 * 2 * width + 2 * c + t % 2] = from[t][c];
}

// ---- forward --------------------------------------------------------------------------------------------------------

// One thread's part: all keys of a (sample, head), and kQueryPanels panels of its queries.
// kernels/attention/cpu_vectors.h has the same class for vectors.
template <class Products>
class Bf16Forward {
 public:
  using In = bf16;
  using T = float;
  static constexpr int kLanesOfPanel = kPanel<float>;
  static_assert(kLanesOfPanel % kTile == 0 && kKeyBlock % kTileDepth == 0);

  struct Panel {
    bf16 q[kMaxHead * kLanesOfPanel];   // [depth / 2, lanes, 2]
    float o[kMaxHead * kLanesOfPanel];  // [height, lanes], not yet divided by the sum
    RunningSoftmax<float> softmax;
  };

  explicit Bf16Forward(const AttentionFwdArgs& a)
      : a_(a),
        height_(round_up(a.shape.head_size, kTile)),
        depth_(round_up(a.shape.head_size, Products::kDepth)),
        keys_(round_up(a.shape.kv_tokens, kKeyBlock)) {
    work_ = static_cast<Work*>(scratch(Scratch::attention, sizeof(Work) + keys_ * (depth_ + height_) * sizeof(bf16)));
    k_ = reinterpret_cast<bf16*>(work_ + 1);
    v_transposed_ = k_ + keys_ * depth_;
  }

  float* scores() { return work_->scores; }
  Panel& panel(int64_t p) { return work_->panels[p]; }

  void load_keys(int64_t head_index) {
    const AttentionShape& s = a_.shape;
    const auto k = head_rows<bf16>(a_.k, a_.k_stride, s, s.kv_tokens, head_index);
    const auto v = head_rows<bf16>(a_.v, a_.v_stride, s, s.kv_tokens, head_index);
    copy_padded(k, s.kv_tokens, keys_, s.head_size, depth_, k_);
    for (int64_t key = 0; key < keys_; key += kKeyBlock)
      transpose_padded(v.from(key), min(kKeyBlock, s.kv_tokens - key), s.head_size, height_, kKeyBlock,
                       v_transposed_ + key * height_);
  }
  // Queries [first, first + lanes) of the rows.
  void load_queries(const HeadRows<const bf16>& q, int64_t first, int64_t lanes, Panel& panel) {
    transpose_interleaved(q.from(first), lanes, a_.shape.head_size, depth_, kLanesOfPanel, panel.q);
    for (int64_t i = 0; i < height_ * kLanesOfPanel; ++i) panel.o[i] = 0;
  }

  // The panel's scores of keys [key, key + count), and the maximum per query.
  ISOBAR_INLINE void find_scores(const Panel& panel, int64_t key, int64_t count, PanelVector<float>& row_max) {
    multiply(products_, {.a = k_ + key * depth_,
                         .a_step = depth_,
                         .b = panel.q,
                         .b_step = 2 * kLanesOfPanel,
                         .c = scores(),
                         .c_step = kLanesOfPanel,
                         .rows = round_up(count, kTile),
                         .cols = kLanesOfPanel,
                         .depth = depth_});
    for (Vector<float>& m : row_max) m = broadcast(-__builtin_inff());
    for (int64_t i = 0; i < count; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v)
        row_max[v] = max<float>(load(scores() + i * kLanesOfPanel + v * kLanes<float>), row_max[v]);
  }
  // O = O · rescale + P · V over the same keys; P has replaced the scores.
  ISOBAR_INLINE void add_output(Panel& panel, int64_t key, int64_t count, bool rescales,
                                const PanelVector<float>& rescale) {
    if (rescales)
      for (int64_t i = 0; i < height_ * kLanesOfPanel; i += kLanesOfPanel)
        for (int v = 0; v < kTileVectors; ++v) {
          float* at = panel.o + i + v * kLanes<float>;
          store(at, load(at) * rescale[v]);
        }
    const int64_t depth = round_up(count, kTileDepth);
    round_p(count, depth);
    multiply(products_, {.a = v_transposed_ + key * height_,
                         .a_step = kKeyBlock,
                         .b = work_->p,
                         .b_step = 2 * kLanesOfPanel,
                         .c = panel.o,
                         .c_step = kLanesOfPanel,
                         .rows = height_,
                         .cols = kLanesOfPanel,
                         .depth = depth,
                         .adds = true});
  }

 private:
  struct Work {
    float scores[kKeyBlock * kLanesOfPanel];  // [keys, lanes]
    bf16 p[kKeyBlock * kLanesOfPanel];        // [keys / 2, lanes, 2]
    Panel panels[kQueryPanels];
  };

  // P in bf16, with pairs of keys interleaved; zeros for keys [count, depth).
  void round_p(int64_t count, int64_t depth) {
    for (int64_t key = 0; key < depth; key += 2)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        const float* at = scores() + key * kLanesOfPanel + v * kLanes<float>;
        const LaneBits even = key < count ? rounded_to_bf16(load(at)) : LaneBits{};
        const LaneBits odd = key + 1 < count ? rounded_to_bf16(load(at + kLanesOfPanel)) : LaneBits{};
        store_interleaved(work_->p + key * kLanesOfPanel + 2 * v * kLanes<float>, even, odd);
      }
  }

  const AttentionFwdArgs& a_;
  int64_t height_, depth_, keys_;  // head size in whole blocks as rows and as depth; keys in whole blocks
  Work* work_;
  bf16* k_;             // [keys, depth]
  bf16* v_transposed_;  // [keys / kKeyBlock, height, kKeyBlock]
  Products products_;
};

// ---- backward -------------------------------------------------------------------------------------------------------

// One thread's part: all queries of a (sample, head), and one group of its keys at a time.
template <class Products>
class Bf16Backward {
 public:
  using In = bf16;
  using T = float;
  static constexpr int kGroup = 96;  // keys that all queries are multiplied with at a time
  static constexpr int64_t dq_step(int64_t head_size) { return round_up(head_size, kTile); }
  static_assert(kGroup % kTileDepth == 0 && kQueryBlock % kTileDepth == 0);

  // dq [padded queries, dq_step] is added to; null: the thread's own.
  Bf16Backward(const AttentionBwdArgs& a, float* dq)
      : a_(a),
        height_(round_up(a.shape.head_size, kTile)),
        depth_(round_up(a.shape.head_size, Products::kDepth)),
        padded_(round_up(a.shape.q_tokens, kQueryBlock)) {
    const int64_t floats = 2 * padded_ + (dq == nullptr ? padded_ * height_ : 0);
    const int64_t halves = 2 * padded_ * (depth_ + height_);
    work_ =
        static_cast<Work*>(scratch(Scratch::attention, sizeof(Work) + floats * sizeof(float) + halves * sizeof(bf16)));
    q_ = reinterpret_cast<bf16*>(work_ + 1);
    d_o_ = q_ + padded_ * depth_;
    q_transposed_ = d_o_ + padded_ * depth_;
    do_transposed_ = q_transposed_ + padded_ * height_;
    terms_.neg_lse = reinterpret_cast<float*>(do_transposed_ + padded_ * height_);
    terms_.neg_delta = terms_.neg_lse + padded_;
    dq_ = dq == nullptr ? terms_.neg_delta + padded_ : dq;
  }

  const float* dq() const { return dq_; }
  const float* dk() const { return work_->dk; }  // transposed, [height, kGroup], without scale
  const float* dv() const { return work_->dv; }

  void load_queries(int64_t head_index) {
    const AttentionShape& s = a_.shape;
    const auto q = head_rows<bf16>(a_.q, a_.q_stride, s, s.q_tokens, head_index);
    const auto d_o = head_rows<bf16>(a_.d_o, a_.do_stride, s, s.q_tokens, head_index);
    copy_padded(q, s.q_tokens, padded_, s.head_size, depth_, q_);
    copy_padded(d_o, s.q_tokens, padded_, s.head_size, depth_, d_o_);
    for (int64_t query = 0; query < padded_; query += kQueryBlock) {
      const int64_t count = min(kQueryBlock, s.q_tokens - query);
      transpose_padded(q.from(query), count, s.head_size, height_, kQueryBlock, q_transposed_ + query * height_);
      transpose_padded(d_o.from(query), count, s.head_size, height_, kQueryBlock, do_transposed_ + query * height_);
    }
    compute_delta<bf16>(a_, head_index, padded_, terms_);
    for (int64_t i = 0; i < padded_ * height_; ++i) dq_[i] = 0;
  }
  void load_keys(int64_t head_index, int64_t key, int64_t count) {
    const AttentionShape& s = a_.shape;
    const auto k = head_rows<bf16>(a_.k, a_.k_stride, s, s.kv_tokens, head_index).from(key);
    const auto v = head_rows<bf16>(a_.v, a_.v_stride, s, s.kv_tokens, head_index).from(key);
    transpose_interleaved(k, count, s.head_size, depth_, kGroup, work_->k_transposed);
    transpose_interleaved(v, count, s.head_size, depth_, kGroup, work_->v_transposed);
    interleave_padded(k, count, kGroup, s.head_size, height_, work_->k);
    for (int64_t i = 0; i < height_ * kGroup; ++i) work_->dk[i] = work_->dv[i] = 0;
  }

  // Queries [query, query + kQueryBlock) with the keys [key, key + keys) of the current group.
  __attribute__((noinline)) void add_block(int64_t head_index, int64_t query, int64_t key, int64_t keys) {
    Work& work = *work_;
    const int64_t count = min(kQueryBlock, a_.shape.q_tokens - query), depth = round_up(count, kTileDepth);
    for (int64_t strip = 0; strip < depth; strip += kStrip) {
      find_rows(q_ + (query + strip) * depth_, work.k_transposed, work.scores);
      find_rows(d_o_ + (query + strip) * depth_, work.v_transposed, work.dp);
      differentiate(head_index, query, strip, min(kStrip, count - strip), key, keys);
    }
    add_columns(do_transposed_ + query * height_, work.p, depth, work.dv);
    add_columns(q_transposed_ + query * height_, work.ds, depth, work.dk);
    multiply(products_, {.a = work.ds_rows,
                         .a_step = kGroup,
                         .b = work.k,
                         .b_step = 2 * height_,
                         .c = dq_ + query * height_,
                         .c_step = height_,
                         .rows = round_up(count, kTile),
                         .cols = height_,
                         .depth = round_up(keys, kTileDepth),
                         .adds = true});
  }

 private:
  static constexpr int kStrip = 32;  // queries whose scores are in fp32 at a time
  static_assert(kStrip % kTileDepth == 0);

  struct Work {
    float scores[kStrip * kGroup];         // [queries, keys]
    float dp[kStrip * kGroup];             // [queries, keys]
    float factors[kStrip * kGroup];        // [queries, keys], of dropout
    bf16 p[kQueryBlock * kGroup];          // [queries / 2, keys, 2]
    bf16 ds[kQueryBlock * kGroup];         // [queries / 2, keys, 2]
    bf16 ds_rows[kQueryBlock * kGroup];    // [queries, keys]
    bf16 k_transposed[kMaxHead * kGroup];  // [depth / 2, keys, 2]
    bf16 v_transposed[kMaxHead * kGroup];
    bf16 k[kGroup * kMaxHead];    // [keys / 2, height, 2]
    float dk[kMaxHead * kGroup];  // [height, keys], sums so far, without scale
    float dv[kMaxHead * kGroup];
  };

  // out [kStrip, kGroup] = rows · the transposed keys or values.
  ISOBAR_INLINE void find_rows(const bf16* rows, const bf16* transposed, float* out) {
    multiply(products_, {.a = rows,
                         .a_step = depth_,
                         .b = transposed,
                         .b_step = 2 * kGroup,
                         .c = out,
                         .c_step = kGroup,
                         .rows = kStrip,
                         .cols = kGroup,
                         .depth = depth_});
  }
  // sum [height, kGroup] += a block of transposed queries · P or dS.
  ISOBAR_INLINE void add_columns(const bf16* transposed, const bf16* p, int64_t depth, float* sum) {
    multiply(products_, {.a = transposed,
                         .a_step = kQueryBlock,
                         .b = p,
                         .b_step = 2 * kGroup,
                         .c = sum,
                         .c_step = kGroup,
                         .rows = height_,
                         .cols = kGroup,
                         .depth = depth,
                         .adds = true});
  }

  struct Row {
    LaneBits p, ds;
  };
  // The keys of a group that a query sees.
  struct SeenPart {
    int64_t first, end;
  };
  // 16 keys of row r of the strip, which sees some of them: dropout(P) and dS = P∘(dropout'(dP) - delta); zero for the
  // others and for padding queries.
  template <bool kDrops>
  ISOBAR_INLINE Row differentiate_row(int64_t query, int64_t r, int64_t lane, int64_t rows, const SeenPart& seen,
                                      float log2_scale) {
    if (r >= rows || lane >= seen.end || lane + kTile <= seen.first) return Row{LaneBits{}, LaneBits{}};
    const int64_t i = r * kGroup + lane;
    Vector<float> dp = load(work_->dp + i);
    const Vector<float> p = exp2_of(load(work_->scores + i) * log2_scale + terms_.neg_lse[query + r]);
    Vector<float> kept = p;
    if constexpr (kDrops) {
      const Vector<float> factor = load(work_->factors + i);
      kept *= factor;
      dp *= factor;
    }
    Row row = {rounded_to_bf16(kept), rounded_to_bf16(p * (dp + terms_.neg_delta[query + r]))};
    if (seen.end - lane < kTile) row = {first_lanes(row.p, seen.end - lane), first_lanes(row.ds, seen.end - lane)};
    if (seen.first > lane)
      row = {row.p ^ first_lanes(row.p, seen.first - lane), row.ds ^ first_lanes(row.ds, seen.first - lane)};
    return row;
  }
  template <bool kDrops>
  void differentiate_strip(int64_t head_index, int64_t query, int64_t strip, int64_t rows, int64_t key, int64_t keys) {
    const float log2_scale = static_cast<float>(a_.scale * kLog2E);
    const KeyMask mask(a_, head_index);
    const auto seen = [&](int64_t r) {
      return SeenPart{mask.first_of(query + strip + r) - key, min(keys, mask.keys_of(query + strip + r) - key)};
    };
    for (int64_t r = 0; r < kStrip; r += 2)
      for (int64_t lane = 0; lane < kGroup; lane += kTile) {
        const Row even = differentiate_row<kDrops>(query + strip, r, lane, rows, seen(r), log2_scale);
        const Row odd = differentiate_row<kDrops>(query + strip, r + 1, lane, rows, seen(r + 1), log2_scale);
        const int64_t i = (strip + r) * kGroup;
        store_interleaved(work_->p + i + 2 * lane, even.p, odd.p);
        store_interleaved(work_->ds + i + 2 * lane, even.ds, odd.ds);
        store_row(work_->ds_rows + i + lane, even.ds);
        store_row(work_->ds_rows + i + kGroup + lane, odd.ds);
      }
  }
  // Turns scores and dP of the first `rows` queries of a strip into P and dS.
  void differentiate(int64_t head_index, int64_t query, int64_t strip, int64_t rows, int64_t key, int64_t keys) {
    if (a_.dropout.p == 0) return differentiate_strip<false>(head_index, query, strip, rows, key, keys);
    for (int64_t r = 0; r < rows; ++r)
      draw_dropout(a_.dropout, score_index(a_.shape, a_.window, head_index, query + strip + r, key), keys,
                   work_->factors + r * kGroup);
    differentiate_strip<true>(head_index, query, strip, rows, key, keys);
  }

  const AttentionBwdArgs& a_;
  int64_t height_, depth_, padded_;  // head size in whole blocks as rows and as depth; queries in whole blocks
  Work* work_;
  bf16* q_;  // [padded, depth]
  bf16* d_o_;
  bf16* q_transposed_;  // [padded / kQueryBlock, height, kQueryBlock]
  bf16* do_transposed_;
  QueryTerms<float> terms_;
  float* dq_;  // [padded, height], sum so far, without scale
  Products products_;
};

}  // namespace isobar::cpu::ISOBAR_ISA

#endif
