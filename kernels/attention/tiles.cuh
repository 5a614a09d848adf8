// What the attention kernels share: tiles of tokens in shared memory, the two products a warp makes with them, the
// dropout mask.
//
// A block has four warps. It owns 64 tokens, 16 a warp, and streams the tokens it meets through shared memory in two
// stages. A warp's scores are a tile of its 16 rows by the streamed columns, spread over its lanes as tensor cores
// spread them (kernels/cuda/mma.h): with g = lane / 4 and t = lane % 4, element 4n + r of a lane is row g + 8·(r / 2),
// column 8n + 2t + r % 2. In 16 bits the products are mma.sync; in fp32 they are plain fused multiply-adds with the
// same layout.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/common/check.h"
#include "kernels/common/math.h"
#include "kernels/common/rng.h"
#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/pack.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

inline constexpr int kWarps = 4, kThreads = kWarps * kWarpSize, kWarpRows = 16, kOwnedRows = kWarps * kWarpRows;

// Streamed tokens a stage, so that everything fits the 99 KiB of shared memory that every GPU since Ampere has.
template <class T, int kHead>
inline constexpr int kForwardRows = sizeof(T) == 2 ? 64 : 32;
template <class T, int kHead>
inline constexpr int kBackwardRows = kForwardRows<T, kHead> / (kHead > 64 ? 2 : 1);

// Elements between the rows of a tile: 16 bytes more than a row, so that eight rows start in different banks.
template <class T, int kHead>
inline constexpr int kPitch = kHead + Pack<T>::kSize;

// Head sizes are padded with zeros to the next of these; kHead is a multiple of 16.
template <class T, class F>
void visit_head_size(std::int64_t head_size, F&& f) {
  if (head_size <= 32) return f(std::integral_constant<int, 32>{});
  if constexpr (sizeof(T) == 2) {
    if (head_size <= 48) return f(std::integral_constant<int, 48>{});
  }
  if (head_size <= 64) return f(std::integral_constant<int, 64>{});
  f(std::integral_constant<int, 128>{});
}

// What a GPU asks of checked arguments besides.
inline void check_for_cuda(const char* kernel, const AttentionShape& s, const AttentionWindow& w, DType dtype) {
  constexpr std::int64_t kMost = INT32_MAX / 2;
  ISOBAR_CHECK(s.batch <= 65535 && s.heads <= 65535 && w.queries.total <= kMost && w.keys.total <= kMost, kernel,
               ": bad shape for a GPU: batch ", s.batch, ", ", s.heads, " heads, ", w.queries.total, " queries, ",
               w.keys.total, " keys");
  ISOBAR_CHECK(dtype == DType::fp32 || is_16_bit(dtype), kernel, ": a GPU has no ", name_of(dtype), " attention");
}

// The grid: tiles of owned tokens, heads, samples.
inline dim3 grid_of(const AttentionShape& s, std::int64_t owned_tokens) {
  return dim3(static_cast<unsigned>(ceil_div(owned_tokens, kOwnedRows)), static_cast<unsigned>(s.heads),
              static_cast<unsigned>(s.batch));
}

// One head of one sample of a [B, T, NH, HS] tensor.
template <class T>
struct Tokens {
  T* first;             // token 0
  std::int64_t stride;  // elements between tokens
  int count;
};

template <class T, class Pointer>
__device__ __forceinline__ Tokens<T> tokens_of(Pointer* tensor, std::int64_t stride, std::int64_t count,
                                               std::int64_t head_size) {
  T* first = static_cast<T*>(tensor) + blockIdx.z * count * stride + blockIdx.y * head_size;
  return {first, stride, static_cast<int>(count)};
}

// ---- Tiles ----------------------------------------------------------------------------------------------------------

// Starts copying tokens row0, row0 + 1, ... into a tile. What lies beyond the tokens or the head becomes zero.
template <class T, int kHead, int kRows>
__device__ __forceinline__ void load_tile(T* tile, const Tokens<const T>& tokens, int row0, int head_size) {
  constexpr int kChunk = Pack<T>::kSize, kChunks = kHead / kChunk;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks, column = i % kChunks * kChunk;
    const bool valid = row0 + row < tokens.count && column < head_size;
    const T* from = valid ? tokens.first + (row0 + row) * tokens.stride + column : tokens.first;
    cp_async_16(tile + row * kPitch<T, kHead> + column, from, valid);
  }
}

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x) % kWarpSize;
}
__device__ __forceinline__ int warp_id() {
  return static_cast<int>(threadIdx.x) / kWarpSize;
}
// The row and the column of this lane's element 4n + r in its warp's tile.
__device__ __forceinline__ int row_of(int r) {
  return lane_id() / 4 + 8 * (r / 2);
}
__device__ __forceinline__ int column_of(int n, int r) {
  return 8 * n + 2 * (lane_id() % 4) + r % 2;
}

template <int kTiles>
__device__ __forceinline__ void clear(float (&x)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int r = 0; r < 4; ++r) x[n][r] = 0;
}

// ---- Products -------------------------------------------------------------------------------------------------------

// scores[i][j] = sum over c of a[i][c]·b[j][c]: 16 rows of one tile by 8·kTiles rows of another.
template <int kHead, int kTiles, class T>
requires(sizeof(T) == 2) __device__ __forceinline__
    void multiply_rows(float (&scores)[kTiles][4], const T* a, const T* b) {
  constexpr int kDepth = 16;
  const int lane = lane_id();
  clear(scores);
  // Where this lane points ldmatrix: the quarters of A are ordered down, then right; those of B right, then down.
  const T* a_row = a + lane % 16 * kPitch<T, kHead> + lane / 16 * 8;
  const T* b_row = b + (lane / 16 * 8 + lane % 8) * kPitch<T, kHead> + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < kHead; k += kDepth) {
    std::uint32_t a_part[4];
    ldmatrix_x4(a_part, a_row + k);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      std::uint32_t b_part[4];
      ldmatrix_x4(b_part, b_row + n * 8 * kPitch<T, kHead> + k);
      mma_16816<T>(scores[n], a_part, {b_part[0], b_part[1]});
      mma_16816<T>(scores[n + 1], a_part, {b_part[2], b_part[3]});
    }
  }
}

template <int kHead, int kTiles>
__device__ __forceinline__ void multiply_rows(float (&scores)[kTiles][4], const float* a, const float* b) {
  clear(scores);
  const float* a_row = a + row_of(0) * kPitch<float, kHead>;
  const float* b_row = b + column_of(0, 0) * kPitch<float, kHead>;
  for (int k = 0; k < kHead; k += 4) {
    const Pack<float> a0 = load_pack(a_row + k), a1 = load_pack(a_row + 8 * kPitch<float, kHead> + k);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const Pack<float> b0 = load_pack(b_row + n * 8 * kPitch<float, kHead> + k);
      const Pack<float> b1 = load_pack(b_row + (n * 8 + 1) * kPitch<float, kHead> + k);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][0] += a0[i] * b0[i];
        scores[n][1] += a0[i] * b1[i];
        scores[n][2] += a1[i] * b0[i];
        scores[n][3] += a1[i] * b1[i];
      }
    }
  }
}

// sum[i][c] += sum over j of weights[i][j]·b[j][c]: weights in registers by a tile of 8·kTiles rows.
template <int kHead, int kTiles, class T>
requires(sizeof(T) == 2) __device__ __forceinline__
    void add_weighted_rows(float (&sum)[kHead / 8][4], const float (&weights)[kTiles][4], const T* b) {
  const int lane = lane_id();
  const T* b_row = b + lane % 16 * kPitch<T, kHead> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kTiles; k += 2) {
    const std::uint32_t a_part[4] = {
        pack_two<T>(weights[k][0], weights[k][1]), pack_two<T>(weights[k][2], weights[k][3]),
        pack_two<T>(weights[k + 1][0], weights[k + 1][1]), pack_two<T>(weights[k + 1][2], weights[k + 1][3])};
#pragma unroll
    for (int c = 0; c < kHead / 8; c += 2) {
      std::uint32_t b_part[4];
      ldmatrix_x4_trans(b_part, b_row + k * 8 * kPitch<T, kHead> + c * 8);
      mma_16816<T>(sum[c], a_part, {b_part[0], b_part[1]});
      mma_16816<T>(sum[c + 1], a_part, {b_part[2], b_part[3]});
    }
  }
}

template <int kHead, int kTiles>
__device__ __forceinline__ void add_weighted_rows(float (&sum)[kHead / 8][4], const float (&weights)[kTiles][4],
                                                  const float* b) {
  const int quad = lane_id() & ~3;
  const float* b_column = b + column_of(0, 0);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float upper = __shfl_sync(kAllLanes, weights[n][j % 2], quad + j / 2);
      const float lower = __shfl_sync(kAllLanes, weights[n][2 + j % 2], quad + j / 2);
      const float* row = b_column + (8 * n + j) * kPitch<float, kHead>;
#pragma unroll
      for (int c = 0; c < kHead / 8; ++c) {
        sum[c][0] += upper * row[8 * c];
        sum[c][1] += upper * row[8 * c + 1];
        sum[c][2] += lower * row[8 * c];
        sum[c][3] += lower * row[8 * c + 1];
      }
    }
  }
}

// Where rows go: a [B, T, NH, HS] tensor in the operands' type or in fp32, written or added to.
struct Destination {
  void* tensor;
  std::int64_t stride, count;  // elements between tokens; T
  DType dtype;
  Grad mode;
};

template <class Out, int kHead>
__device__ __forceinline__ void store_rows_as(const Destination& to, int row0, int head_size,
                                              const float (&rows)[kHead / 8][4], const float (&factor)[2]) {
  const auto tokens = tokens_of<Out>(to.tensor, to.stride, to.count, head_size);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = row0 + row_of(2 * half);
    if (token >= tokens.count) continue;
    Out* row = tokens.first + token * tokens.stride;
#pragma unroll
    for (int c = 0; c < kHead / 8; ++c) {
      if (8 * c >= head_size) continue;
      float first = rows[c][2 * half] * factor[half], second = rows[c][2 * half + 1] * factor[half];
      if (to.mode == Grad::accumulate) {
        const TwoFloats before = load_two(row + column_of(c, 0));
        first += before.first;
        second += before.second;
      }
      store_two(row + column_of(c, 0), first, second);
    }
  }
}

// Stores a warp's 16 rows, the first being token row0, those of g times factor[0] and those of g + 8 times factor[1].
template <class T, int kHead>
__device__ __forceinline__ void store_rows(const Destination& to, int row0, int head_size,
                                           const float (&rows)[kHead / 8][4], const float (&factor)[2]) {
  if constexpr (sizeof(T) == 2) {
    if (to.dtype == DType::fp32) return store_rows_as<float, kHead>(to, row0, head_size, rows, factor);
  }
  store_rows_as<T, kHead>(to, row0, head_size, rows, factor);
}

// ---- Softmax and dropout --------------------------------------------------------------------------------------------

// In 16 bits the exponential is rounded away by what follows; in fp32 it must be good.
template <class T>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (sizeof(T) == 2)
    return __expf(x);
  else
    return expf(x);
}

// Which elements of one head's P are kept. An element is known by its index in P of the global batch.
struct KeepMask {
  std::uint64_t seed, stream, first;  // index of the block's P[0][0]
  std::uint64_t keys;                 // of the whole: elements between rows of P
  std::uint32_t threshold;
  float scale;  // of what is kept

  __device__ __forceinline__ explicit KeepMask(const AttentionDropout& d)
      : seed(d.seed),
        stream(d.stream),
        first(first_of(d.window)),
        keys(static_cast<std::uint64_t>(d.window.keys.total)),
        threshold(drop_threshold(d.p)),
        scale(1 / (1 - d.p)) {}

  static __device__ __forceinline__ std::uint64_t first_of(const AttentionWindow& w) {
    const std::int64_t head = w.samples.at(blockIdx.z) * w.heads.total + w.heads.first + blockIdx.y;
    return static_cast<std::uint64_t>((head * w.queries.total + w.queries.first) * w.keys.total + w.keys.first);
  }

  // Bit 4n + r for this lane's elements of a tile whose corner is element `corner` of P, its rows and its columns being
  // so many elements apart. A rolled loop: one copy of the generator instead of one an element.
  template <int kTiles>
  __device__ __forceinline__ std::uint32_t bits(std::uint64_t corner, std::uint64_t row_step,
                                                std::uint64_t column_step) const {
    static_assert(4 * kTiles <= 32);
    if (threshold == 0) return ~0u;
    const std::uint64_t origin = first + corner + row_of(0) * row_step + column_of(0, 0) * column_step;
    std::uint32_t kept = 0;
#pragma unroll 1
    for (int e = 0; e < 4 * kTiles; ++e) {
      const std::uint64_t index = origin + (e % 4 / 2 != 0 ? 8 * row_step : 0) + (8 * (e / 4) + e % 2) * column_step;
      kept |= (random_bits(seed, stream, index) >= threshold ? 1u : 0u) << e;
    }
    return kept;
  }
};

// ---- The two halves of the backward pass ----------------------------------------------------------------------------

void launch_dkdv(const AttentionBwd& a, Stream stream);  // dkdv.cu
void launch_dq(const AttentionBwd& a, Stream stream);    // dq.cu

// From a score and the product dO·V to dropout(P) and dS, in place.
template <class T>
__device__ __forceinline__ void differentiate(float& score, float& dp, float scale, float lse, float delta, bool kept,
                                              float keep_scale) {
  const float p = exponential<T>(score * scale - lse);
  score = kept ? p * keep_scale : 0;
  dp = p * ((kept ? dp * keep_scale : 0) - delta);
}

// One head of one sample: the tokens that both halves read.
template <class T>
struct BackwardTokens {
  Tokens<const T> q, k, v, d_o;

  __device__ __forceinline__ BackwardTokens(const AttentionBwd& a, int head_size)
      : q(tokens_of<const T>(a.q, a.q_stride, a.shape.q_tokens, head_size)),
        k(tokens_of<const T>(a.k, a.k_stride, a.shape.kv_tokens, head_size)),
        v(tokens_of<const T>(a.v, a.v_stride, a.shape.kv_tokens, head_size)),
        d_o(tokens_of<const T>(a.d_o, a.do_stride, a.shape.q_tokens, head_size)) {}
};

// Two owned tiles, which stay, and two streamed ones in two stages.
template <class T, int kHead>
struct BackwardShared {
  static constexpr int kRows = kBackwardRows<T, kHead>;
  static constexpr int kOwned = kOwnedRows * kPitch<T, kHead>, kStreamed = kRows * kPitch<T, kHead>;
  static constexpr std::size_t kBytes = (2 * kOwned + 4 * kStreamed) * sizeof(T);

  T* shared;

  __device__ __forceinline__ T* owned(int which) const { return shared + which * kOwned; }
  __device__ __forceinline__ T* streamed(int which, int stage) const {
    return shared + 2 * kOwned + (2 * stage + which) * kStreamed;
  }

  // Start copying tokens row0, row0 + 1, ... of two tensors.
  __device__ __forceinline__ void load_owned(const Tokens<const T>& x, const Tokens<const T>& y, int row0,
                                             int head_size) const {
    load_tile<T, kHead, kOwnedRows>(owned(0), x, row0, head_size);
    load_tile<T, kHead, kOwnedRows>(owned(1), y, row0, head_size);
  }
  __device__ __forceinline__ void load_streamed(int stage, const Tokens<const T>& x, const Tokens<const T>& y, int row0,
                                                int head_size) const {
    load_tile<T, kHead, kRows>(streamed(0, stage), x, row0, head_size);
    load_tile<T, kHead, kRows>(streamed(1, stage), y, row0, head_size);
  }
};

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
