// The ladder of attention on a GPU. Compiled by nvcc, and by the host compiler against the emulator
// (bench/ladder/emulated.cc).
#include "bench/ladder/attention.h"
#include "kernels/common/math.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/exp2.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/reduce.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr float kLn2 = 0.69314718055994531f;

unsigned blocks_for_rows(std::int64_t n, std::int64_t rows) {
  return static_cast<unsigned>(ceil_div(n, rows));
}

__device__ __forceinline__ float minus_infinity() {
  return __int_as_float(static_cast<int>(0xff800000u));
}

// ---- 1. scores in memory --------------------------------------------------------------------------------------------

// The three lines of the formula, a kernel each; between them S and P lie in memory, 66 MB a head for 4050 tokens.
// Scores: a thread each, from 96 numbers. Softmax: a warp a row. Output: a thread for each number of O, whose warp
// reads V coalesced.
__global__ void stored_scores_kernel(AttentionRungArgs a) {
  const std::int64_t i = global_thread(), n = a.tokens;
  if (i >= a.heads * n * n) return;
  const std::int64_t head = i / (n * n), query = i / n % n, key = i % n;
  const float* q = a.q + (head * n + query) * kRungHead;
  const float* k = a.k + (head * n + key) * kRungHead;
  float sum = 0;
  for (int c = 0; c < kRungHead; ++c) sum += q[c] * k[c];
  a.scores[i] = sum * kRungLog2Scale;
}

__global__ void stored_softmax_kernel(AttentionRungArgs a) {
  const std::int64_t row = global_thread() / kWarpSize, lane = threadIdx.x % kWarpSize;
  if (row >= a.heads * a.tokens) return;
  float* s = a.scores + row * a.tokens;
  float largest = minus_infinity(), sum = 0;
  for (std::int64_t j = lane; j < a.tokens; j += kWarpSize) largest = max(largest, s[j]);
  largest = warp_max(largest);
  for (std::int64_t j = lane; j < a.tokens; j += kWarpSize) {
    s[j] = exp2_approx(s[j] - largest);
    sum += s[j];
  }
  sum = warp_sum(sum);
  for (std::int64_t j = lane; j < a.tokens; j += kWarpSize) s[j] /= sum;
  if (lane == 0) a.lse[row] = largest * kLn2 + logf(sum);
}

__global__ void stored_output_kernel(AttentionRungArgs a) {
  const std::int64_t i = global_thread(), row = i / kRungHead, c = i % kRungHead;
  if (row >= a.heads * a.tokens) return;
  const float* p = a.scores + row * a.tokens;
  const float* v = a.v + row / a.tokens * a.tokens * kRungHead + c;
  float sum = 0;
  for (std::int64_t j = 0; j < a.tokens; ++j) sum += p[j] * v[j * kRungHead];
  a.o[i] = sum;
}

// ---- 2. online, a thread for each query -----------------------------------------------------------------------------

// One kernel, and no score leaves a register. A thread keeps its query and its output, 96 registers. All lanes of a
// warp read the same key at the same time: one request that all share, 16 bytes at once. Each score is followed by an
// exponential, and where a lane finds a larger maximum the warp rescales 48 numbers.
//
// k and v: rows of 48 numbers, loaded by 16 bytes.
__device__ __forceinline__ float product_of(const float (&q)[kRungHead], const float* k) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kRungHead; c += 4) {
    const Chunk<float, 4> part = load_chunk<4>(k + c);
    for (int i = 0; i < 4; ++i) sum += q[c + i] * part.value[i];
  }
  return sum;
}

__device__ __forceinline__ void add_value(float p, const float* v, float (&o)[kRungHead]) {
#pragma unroll
  for (int c = 0; c < kRungHead; c += 4) {
    const Chunk<float, 4> part = load_chunk<4>(v + c);
    for (int i = 0; i < 4; ++i) o[c + i] += p * part.value[i];
  }
}

// A query's state of the online softmax; scores are in powers of two.
struct Query {
  float q[kRungHead], o[kRungHead];
  float largest, sum;

  __device__ __forceinline__ void begin(const float* from) {
    for (int c = 0; c < kRungHead; ++c) q[c] = from[c] * kRungLog2Scale, o[c] = 0;
    largest = minus_infinity(), sum = 0;
  }
  __device__ __forceinline__ void raise(float score) {  // to a maximum that may be larger
    if (score <= largest) return;
    const float shrink = exp2_approx(largest - score);
    largest = score, sum *= shrink;
#pragma unroll
    for (int c = 0; c < kRungHead; ++c) o[c] *= shrink;
  }
  __device__ __forceinline__ void end(float* to, float* lse) const {
    for (int c = 0; c < kRungHead; ++c) to[c] = o[c] / sum;
    *lse = largest * kLn2 + logf(sum);
  }
};

__global__ void __launch_bounds__(kThreads) online_kernel(AttentionRungArgs a) {
  const std::int64_t query = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, start = blockIdx.y * a.tokens;
  if (query >= a.tokens) return;
  Query state;
  state.begin(a.q + (start + query) * kRungHead);
  for (std::int64_t key = 0; key < a.tokens; ++key) {
    const float score = product_of(state.q, a.k + (start + key) * kRungHead);
    state.raise(score);
    const float p = exp2_approx(score - state.largest);
    state.sum += p;
    add_value(p, a.v + (start + key) * kRungHead, state.o);
  }
  state.end(a.o + (start + query) * kRungHead, a.lse + start + query);
}

// ---- 3. keys in shared memory ---------------------------------------------------------------------------------------

// The 128 threads of a block load 16 keys and values together, coalesced, and then all read them from shared memory,
// which answers in a tenth of the time. A thread has the 16 scores in registers first, so that it rescales once for all
// of them. Keys that do not exist are zeros and get the score -infinity. Threads without a query compute with the last
// one: they must be there for the barriers.
constexpr int kSharedKeys = 16;

__global__ void __launch_bounds__(kThreads) shared_kernel(AttentionRungArgs a) {
  __shared__ __align__(16) float k[kSharedKeys * kRungHead], v[kSharedKeys * kRungHead];
  const std::int64_t query = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, start = blockIdx.y * a.tokens;
  Query state;
  state.begin(a.q + (start + min(query, a.tokens - 1)) * kRungHead);
  for (std::int64_t first = 0; first < a.tokens; first += kSharedKeys) {
    const std::int64_t there = min(std::int64_t{kSharedKeys}, a.tokens - first) * kRungHead;
    for (int i = static_cast<int>(threadIdx.x); i < kSharedKeys * kRungHead; i += kThreads) {
      k[i] = i < there ? a.k[(start + first) * kRungHead + i] : 0.0f;
      v[i] = i < there ? a.v[(start + first) * kRungHead + i] : 0.0f;
    }
    __syncthreads();
    float scores[kSharedKeys], largest = minus_infinity();
#pragma unroll
    for (int j = 0; j < kSharedKeys; ++j) {
      scores[j] = first + j < a.tokens ? product_of(state.q, k + j * kRungHead) : minus_infinity();
      largest = max(largest, scores[j]);
    }
    state.raise(largest);
#pragma unroll
    for (int j = 0; j < kSharedKeys; ++j) {
      const float p = exp2_approx(scores[j] - state.largest);
      state.sum += p;
      add_value(p, v + j * kRungHead, state.o);
    }
    __syncthreads();
  }
  if (query < a.tokens) state.end(a.o + (start + query) * kRungHead, a.lse + start + query);
}

// ---- 4. tensor cores ------------------------------------------------------------------------------------------------

// A warp has 16 queries, and both products go to tensor cores in tf32, as in the fifth rung of the matrix product. Lane
// l has, with g = l / 4 and t = l % 4, scores of queries g and g + 8: of each 8 keys, keys 2t and 2t + 1. So the four
// lanes with one g share a row, and two shuffles find its maximum; each lane keeps the sum of its own columns until the
// end.
//
// P must become the first operand of P·V, where a lane has columns t and t + 4. But in a sum over keys the keys may be
// numbered as one likes: key 2t is called the t-th and key 2t + 1 the (t + 4)-th, for V as for P. So P stays where it
// is.
constexpr int kTensorKeys = 32, kPitch = kRungHead + 4, kWarpQueries = 16, kBlockQueries = 64;

struct Rows {  // of queries g and g + 8: what one lane holds
  float o[kRungHead / 8][4];
  float largest[2], sum[2];
};

// New maxima of both rows; what was there shrinks; scores become P.
__device__ __forceinline__ void soften(float (&s)[kTensorKeys / 8][4], Rows& rows) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float largest = rows.largest[row];
    for (int j = 0; j < kTensorKeys / 8; ++j) largest = max(largest, max(s[j][2 * row], s[j][2 * row + 1]));
    for (int step = 1; step <= 2; step *= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, step));
    const float shrink = exp2_approx(rows.largest[row] - largest);
    rows.largest[row] = largest, rows.sum[row] *= shrink;
    for (int c = 0; c < kRungHead / 8; ++c) rows.o[c][2 * row] *= shrink, rows.o[c][2 * row + 1] *= shrink;
    for (int j = 0; j < kTensorKeys / 8; ++j) {
      for (int part = 2 * row; part < 2 * row + 2; ++part) {
        s[j][part] = exp2_approx(s[j][part] - largest);
        rows.sum[row] += s[j][part];
      }
    }
  }
}

// Rows [first, first + kTensorKeys) of a head of K or V, zeros beyond the last.
__device__ __forceinline__ void load_tile(const float* from, std::int64_t first, std::int64_t tokens, float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < kTensorKeys * kRungHead; i += kThreads) {
    const int row = i / kRungHead, c = i % kRungHead;
    to[row * kPitch + c] = first + row < tokens ? from[(first + row) * kRungHead + c] : 0.0f;
  }
}

__global__ void __launch_bounds__(kThreads) tensor_kernel(AttentionRungArgs a) {
  __shared__ float k[kTensorKeys * kPitch], v[kTensorKeys * kPitch];
  const std::int64_t start = blockIdx.y * a.tokens;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, g = lane / 4, t = lane % 4;
  const std::int64_t first = std::int64_t{blockIdx.x} * kBlockQueries + threadIdx.x / kWarpSize * kWarpQueries;
  const auto query = [&](int row) { return min(first + g + 8 * row, a.tokens - 1); };
  std::uint32_t q[kRungHead / 8][4];
#pragma unroll
  for (int c = 0; c < kRungHead / 8; ++c)
    for (int part = 0; part < 4; ++part)
      q[c][part] = to_tf32(a.q[(start + query(part % 2)) * kRungHead + 8 * c + t + 4 * (part / 2)]);

  Rows rows = {.o = {}, .largest = {minus_infinity(), minus_infinity()}, .sum = {}};
  for (std::int64_t key = 0; key < a.tokens; key += kTensorKeys) {
    load_tile(a.k + start * kRungHead, key, a.tokens, k);
    load_tile(a.v + start * kRungHead, key, a.tokens, v);
    __syncthreads();
    float s[kTensorKeys / 8][4] = {};
#pragma unroll
    for (int j = 0; j < kTensorKeys / 8; ++j) {
      for (int c = 0; c < kRungHead / 8; ++c) {
        const float* from = k + (8 * j + g) * kPitch + 8 * c + t;
        mma_1688(s[j], q[c], {to_tf32(from[0]), to_tf32(from[4])}, s[j]);
      }
      for (int part = 0; part < 4; ++part)
        s[j][part] = key + 8 * j + 2 * t + part % 2 < a.tokens ? s[j][part] * kRungLog2Scale : minus_infinity();
    }
    soften(s, rows);
#pragma unroll
    for (int j = 0; j < kTensorKeys / 8; ++j) {
      const std::uint32_t p[4] = {to_tf32(s[j][0]), to_tf32(s[j][2]), to_tf32(s[j][1]), to_tf32(s[j][3])};
      for (int c = 0; c < kRungHead / 8; ++c) {
        const float* from = v + (8 * j + 2 * t) * kPitch + 8 * c + g;
        mma_1688(rows.o[c], p, {to_tf32(from[0]), to_tf32(from[kPitch])}, rows.o[c]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float sum = rows.sum[row];
    for (int step = 1; step <= 2; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    const std::int64_t i = first + g + 8 * row;
    if (i >= a.tokens) continue;
    float* o = a.o + (start + i) * kRungHead + 2 * t;
    for (int c = 0; c < kRungHead / 8; ++c)
      for (int part = 0; part < 2; ++part) o[8 * c + part] = rows.o[c][2 * row + part] / sum;
    if (t == 0) a.lse[start + i] = rows.largest[row] * kLn2 + logf(sum);
  }
}

}  // namespace

// ---- launch ---------------------------------------------------------------------------------------------------------

void attention_stored(const AttentionRungArgs& a, Stream stream) {
  const std::int64_t rows = a.heads * a.tokens;
  launch("attention_stored_scores", stored_scores_kernel, dim3(blocks_for_rows(rows * a.tokens, kThreads)),
         dim3(kThreads), 0, stream, a);
  launch("attention_stored_softmax", stored_softmax_kernel, dim3(blocks_for_rows(rows * kWarpSize, kThreads)),
         dim3(kThreads), 0, stream, a);
  launch("attention_stored_output", stored_output_kernel, dim3(blocks_for_rows(rows * kRungHead, kThreads)),
         dim3(kThreads), 0, stream, a);
}

void attention_online(const AttentionRungArgs& a, Stream stream) {
  launch("attention_online", online_kernel, dim3(blocks_for_rows(a.tokens, kThreads), static_cast<unsigned>(a.heads)),
         dim3(kThreads), 0, stream, a);
}

void attention_shared(const AttentionRungArgs& a, Stream stream) {
  launch("attention_shared", shared_kernel, dim3(blocks_for_rows(a.tokens, kThreads), static_cast<unsigned>(a.heads)),
         dim3(kThreads), 0, stream, a);
}

void attention_tensor(const AttentionRungArgs& a, Stream stream) {
  launch("attention_tensor", tensor_kernel,
         dim3(blocks_for_rows(a.tokens, kBlockQueries), static_cast<unsigned>(a.heads)), dim3(kThreads), 0, stream, a);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
