// The ladder of attention on a CPU. Like kernels/*_cpu.cc this file is compiled once for each instruction set
// (kernels/cpu/isa.h).
#include <cmath>

#include "bench/ladder/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {

constexpr float kMinusInfinity = -__builtin_inff();

ISOBAR_INLINE float score_of(const float* q, const float* k) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int c = 0; c < kRungHead; ++c) sum += q[c] * k[c];
  return sum * kRungScale;
}

// ---- 1. scores in memory --------------------------------------------------------------------------------------------

// The three lines of the formula, each for the whole matrix, as array code runs them: S, then P in its place, then O.
// With 4050 tokens S has 66 MB a head. It is written, read and written, and read again; the arithmetic waits for it.
void attention_stored(const AttentionRungArgs& a) {
  const std::int64_t n = a.tokens;
  for (std::int64_t head = 0; head < a.heads; ++head) {
    const float *q = a.q + head * n * kRungHead, *k = a.k + head * n * kRungHead, *v = a.v + head * n * kRungHead;
    float* s = a.scores + head * n * n;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) s[i * n + j] = score_of(q + i * kRungHead, k + j * kRungHead);
    for (std::int64_t i = 0; i < n; ++i) {
      float largest = kMinusInfinity, sum = 0;
#pragma omp simd reduction(max : largest)
      for (std::int64_t j = 0; j < n; ++j) largest = s[i * n + j] > largest ? s[i * n + j] : largest;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t j = 0; j < n; ++j) {
        s[i * n + j] = exp(s[i * n + j] - largest);
        sum += s[i * n + j];
      }
#pragma omp simd
      for (std::int64_t j = 0; j < n; ++j) s[i * n + j] /= sum;
      a.lse[head * n + i] = largest + std::log(sum);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      float o[kRungHead] = {};
      for (std::int64_t j = 0; j < n; ++j)
#pragma omp simd
        for (int c = 0; c < kRungHead; ++c) o[c] += s[i * n + j] * v[j * kRungHead + c];
      for (int c = 0; c < kRungHead; ++c) a.o[(head * n + i) * kRungHead + c] = o[c];
    }
  }
}

// ---- 2. online, a row at a time -------------------------------------------------------------------------------------

// Nothing is stored: one query goes through all keys with the maximum so far, the sum so far and the output so far
// (docs/learn/4_attention.md, "The online softmax"). Where a key brings a larger maximum, what there is shrinks by one
// factor. The memory is gone as a limit; but now one exponential is computed at a time, each step waits for the one
// before, and every query reads all keys and values again.
void attention_online(const AttentionRungArgs& a) {
  const std::int64_t n = a.tokens;
  for (std::int64_t row = 0; row < a.heads * n; ++row) {
    const float* q = a.q + row * kRungHead;
    const float *k = a.k + row / n * n * kRungHead, *v = a.v + row / n * n * kRungHead;
    float largest = kMinusInfinity, sum = 0, o[kRungHead] = {};
    for (std::int64_t j = 0; j < n; ++j) {
      const float score = score_of(q, k + j * kRungHead);
      if (score > largest) {
        const float shrink = exp(largest - score);  // 0 at the first key
        sum *= shrink;
#pragma omp simd
        for (int c = 0; c < kRungHead; ++c) o[c] *= shrink;
        largest = score;
      }
      const float p = exp(score - largest);
      sum += p;
#pragma omp simd
      for (int c = 0; c < kRungHead; ++c) o[c] += p * v[j * kRungHead + c];
    }
    for (int c = 0; c < kRungHead; ++c) a.o[row * kRungHead + c] = o[c] / sum;
    a.lse[row] = largest + std::log(sum);
  }
}

// ---- 3. blocks of queries and keys ----------------------------------------------------------------------------------

// A panel of queries, as many as a register tile is wide (48 with AVX-512), meets 64 keys at a time. Queries lie across
// the lanes of vectors: Q and O are held transposed, [48, lanes], and a block of scores is [keys, lanes]. Then softmax
// works lane by lane, 16 exponentials at once, no lane needs its neighbour, and there is one rescaling for 64 keys. All
// that a panel needs (Q and O 9 KB each, scores 12 KB, keys and values 24 KB) stays in the caches, and keys are loaded
// once for a whole panel of queries.
constexpr int kQueries = kPanel<float>, kKeys = 64;

struct Panel {
  float q[kRungHead * kQueries];  // [48, lanes]
  float o[kRungHead * kQueries];  // [48, lanes], not yet divided by the sum
  float scores[kKeys * kQueries];
  float largest[kQueries], sum[kQueries], shrink[kQueries];
  float keys[kKeys * kRungHead], values[kKeys * kRungHead];  // of the last block, filled up with zeros
};

ISOBAR_INLINE void begin_panel(const float* q, std::int64_t queries, Panel& panel) {
  for (std::int64_t lane = 0; lane < kQueries; ++lane) {
    panel.largest[lane] = kMinusInfinity;
    panel.sum[lane] = 0;
    for (int c = 0; c < kRungHead; ++c) {
      panel.q[c * kQueries + lane] = lane < queries ? q[lane * kRungHead + c] * kRungLog2Scale : 0;
      panel.o[c * kQueries + lane] = 0;
    }
  }
}

// Of scores in powers of two: the new maximum, what that shrinks the old sums by, and P in place of the scores.
ISOBAR_INLINE void soften(std::int64_t keys, Panel& panel) {
#pragma omp simd
  for (int lane = 0; lane < kQueries; ++lane) {
    float largest = panel.largest[lane];
    for (std::int64_t j = 0; j < keys; ++j) {
      const float score = panel.scores[j * kQueries + lane];
      largest = score > largest ? score : largest;
    }
    panel.shrink[lane] = exp((panel.largest[lane] - largest) * 0.693147181f);
    panel.largest[lane] = largest;
    panel.sum[lane] *= panel.shrink[lane];
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    float* const p = panel.scores + j * kQueries;
    for (int lane = 0; lane < kQueries; lane += kLanes<float>) {
      const Vector<float> power = exp2_of(load(p + lane) - load(panel.largest + lane));
      store(p + lane, power);
      store(panel.sum + lane, load(panel.sum + lane) + power);
    }
  }
  for (std::int64_t j = keys; j < kKeys; ++j)
    for (int lane = 0; lane < kQueries; ++lane) panel.scores[j * kQueries + lane] = 0;  // of keys that do not exist
}

ISOBAR_INLINE void end_panel(const Panel& panel, std::int64_t queries, float* o, float* lse) {
  for (std::int64_t lane = 0; lane < queries; ++lane) {
    for (int c = 0; c < kRungHead; ++c) o[lane * kRungHead + c] = panel.o[c * kQueries + lane] / panel.sum[lane];
    lse[lane] = panel.largest[lane] * 0.693147181f + std::log(panel.sum[lane]);
  }
}

// One panel through all keys of its head. `find_scores` and `add_output` are the two products.
template <class FindScores, class AddOutput>
ISOBAR_INLINE void run_panel(const AttentionRungArgs& a, std::int64_t head, std::int64_t first, Panel& panel,
                             const FindScores& find_scores, const AddOutput& add_output) {
  const std::int64_t start = head * a.tokens, queries = min(kQueries, a.tokens - first);
  begin_panel(a.q + (start + first) * kRungHead, queries, panel);
  for (std::int64_t key = 0; key < a.tokens; key += kKeys) {
    const std::int64_t keys = min(kKeys, a.tokens - key);
    const float *k = a.k + (start + key) * kRungHead, *v = a.v + (start + key) * kRungHead;
    if (keys < kKeys) {
      for (std::int64_t i = 0; i < kKeys * kRungHead; ++i) {
        panel.keys[i] = i < keys * kRungHead ? k[i] : 0;
        panel.values[i] = i < keys * kRungHead ? v[i] : 0;
      }
      k = panel.keys, v = panel.values;
    }
    find_scores(k, panel);
    soften(keys, panel);
    add_output(v, panel);
  }
  end_panel(panel, queries, a.o + (start + first) * kRungHead, a.lse + start + first);
}

ISOBAR_INLINE Panel& own_panel() {
  return *static_cast<Panel*>(scratch(Scratch::attention, sizeof(Panel)));
}

// The products as plain loops along the lanes: each multiply-add loads and stores a vector of its sums.
ISOBAR_INLINE void plain_scores(const float* k, Panel& panel) {
  for (int j = 0; j < kKeys; ++j) {
    float* const score = panel.scores + j * kQueries;
    for (int lane = 0; lane < kQueries; ++lane) score[lane] = 0;
    for (int c = 0; c < kRungHead; ++c)
#pragma omp simd
      for (int lane = 0; lane < kQueries; ++lane) score[lane] += k[j * kRungHead + c] * panel.q[c * kQueries + lane];
  }
}
ISOBAR_INLINE void plain_output(const float* v, Panel& panel) {
  for (int c = 0; c < kRungHead; ++c) {
    float* const o = panel.o + c * kQueries;
#pragma omp simd
    for (int lane = 0; lane < kQueries; ++lane) o[lane] *= panel.shrink[lane];
    for (int j = 0; j < kKeys; ++j)
#pragma omp simd
      for (int lane = 0; lane < kQueries; ++lane) o[lane] += v[j * kRungHead + c] * panel.scores[j * kQueries + lane];
  }
}

void attention_blocks(const AttentionRungArgs& a) {
  for (std::int64_t head = 0; head < a.heads; ++head)
    for (std::int64_t first = 0; first < a.tokens; first += kQueries)
      run_panel(a, head, first, own_panel(), plain_scores, plain_output);
}

// ---- 4. products in register tiles ----------------------------------------------------------------------------------

// The two products as those of the matrix product's third rung (bench/ladder/product_cpu.cc; the tile is the class of
// kernels/cpu/simd.h): sums stay in registers while c or j runs. Nothing else changes.
ISOBAR_INLINE void tiled_scores(const float* k, Panel& panel) {
  for (int j = 0; j < kKeys; j += kTileRows) {
    Tile<float, kTileRows, kTileVectors> tile;
    tile.clear();
    tile.multiply<kRungHead, 1, kQueries>(k + j * kRungHead, panel.q, kRungHead);
    tile.store_to<kQueries>(panel.scores + j * kQueries);
  }
}
ISOBAR_INLINE void tiled_output(const float* v, Panel& panel) {
  for (int c = 0; c < kRungHead; c += kTileRows) {
    Tile<float, kTileRows, kTileVectors> tile;
    tile.load_from<kQueries>(panel.o + c * kQueries);
    for (int i = 0; i < kTileRows; ++i)
      for (int part = 0; part < kTileVectors; ++part) tile.c[i][part] *= load(panel.shrink + part * kLanes<float>);
    tile.multiply<1, kRungHead, kQueries>(v + c, panel.scores, kKeys);
    tile.store_to<kQueries>(panel.o + c * kQueries);
  }
}

void attention_tiled(const AttentionRungArgs& a) {
  for (std::int64_t head = 0; head < a.heads; ++head)
    for (std::int64_t first = 0; first < a.tokens; first += kQueries)
      run_panel(a, head, first, own_panel(), tiled_scores, tiled_output);
}

// ---- 5. threaded ----------------------------------------------------------------------------------------------------

// Panels do not depend on each other: the threads share them out.
void attention_threaded(const AttentionRungArgs& a) {
  const std::int64_t of_head = ceil_div(a.tokens, std::int64_t{kQueries});
  parallel_for(a.heads * of_head, 1, [&](std::int64_t begin, std::int64_t end) {
    Panel& panel = own_panel();
    for (std::int64_t i = begin; i < end; ++i)
      run_panel(a, i / of_head, i % of_head * kQueries, panel, tiled_scores, tiled_output);
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(attention_stored, AttentionRungArgs)
ISOBAR_CPU_KERNEL(attention_online, AttentionRungArgs)
ISOBAR_CPU_KERNEL(attention_blocks, AttentionRungArgs)
ISOBAR_CPU_KERNEL(attention_tiled, AttentionRungArgs)
ISOBAR_CPU_KERNEL(attention_threaded, AttentionRungArgs)
