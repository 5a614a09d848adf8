// Shared by the attention kernels: tiles of tokens in shared memory, the two products of a warp, and the dropout mask.
//
// A block has four warps. It owns some tokens, 16 or 32 a warp, and streams other tokens through shared memory in two
// stages. A warp's scores are tiles of 16 of its rows by the streamed columns, in the lane layout of tensor cores
// (kernels/cuda/mma.h): with g = lane / 4 and t = lane % 4, element [n][r] of a lane is row g + 8·(r / 2), column 8n +
// 2t + r % 2. In 16 bits and TF32 the products are mma.sync; in fp32 they are plain fused multiply-adds with the same
// layout. A loaded operand is used for all rows of a warp, so a warp has as many rows as registers allow. Operands in
// TF32 are rounded once, in shared memory, by the thread that copied them.
#pragma once

#include <numbers>

#include "kernels/attention/attention.h"
#include "kernels/common/math.h"
#include "kernels/common/rng.h"
#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/exp2.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/pack.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

inline constexpr int kWarps = 4, kThreads = kWarps * kWarpSize, kTileRows = 16;

template <class T>
inline constexpr bool kIsTf32 = std::is_same_v<T, Tf32>;
template <class T>
inline constexpr bool kOnTensorCores = sizeof(T) == 2 || kIsTf32<T>;

// Elements between the rows of a tile: 16 bytes more than a row, so that eight rows start in different banks.
template <class T, int kHead>
inline constexpr int kPitch = kHead + Pack<T>::kSize;

// Max tokens of a stage such that, in 16 bits, a multiprocessor of an A100 holds two blocks (164 KiB; the system uses 1
// KiB a block), and, in fp32, every GPU since Ampere holds one (99 KiB).
template <class T, int kHead>
constexpr int rows_of_stage(int owned_rows, int more_bytes_a_row = 0) {
  constexpr int kRowBytes = kPitch<T, kHead> * static_cast<int>(sizeof(T));
  const int limit = (sizeof(T) == 2 ? 81 : 99) << 10;
  int rows = sizeof(T) == 2 ? 64 : 32;
  while ((owned_rows + 4 * rows) * kRowBytes + 2 * more_bytes_a_row * rows > limit) rows /= 2;
  return rows;
}

// The grid: tiles of owned tokens, heads, samples.
inline dim3 grid_of(const AttentionShape& s, std::int64_t tokens, int owned_rows) {
  return dim3(static_cast<unsigned>(ceil_div(tokens, owned_rows)), static_cast<unsigned>(s.heads),
              static_cast<unsigned>(s.batch));
}

// The tile of queries that a block owns. Blocks start in the order of their numbers: those with the most work first.
__device__ __forceinline__ int tile_of_queries(bool causal) {
  return static_cast<int>(causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

// Calls f with whether there is dropout, as a constant. With kOneKernel the kernel for dropout is used in both cases,
// as in fp32, where products take most of the time.
template <class T, bool kOneKernel = !kOnTensorCores<T>, class F>
void visit_dropout(const AttentionDropout& dropout, F&& f) {
  if constexpr (!kOneKernel) {
    if (drop_threshold(dropout.p) == 0) return f(std::false_type{});
  }
  f(std::true_type{});
}

// Scores times this are exponents of 2.
inline float score_scale_of(double scale) {
  return static_cast<float>(scale * std::numbers::log2e);
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

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x) % kWarpSize;
}
__device__ __forceinline__ int warp_id() {
  return static_cast<int>(threadIdx.x) / kWarpSize;
}
// The row and the column of this lane's element [n][r] in its warp's tile.
__device__ __forceinline__ int row_of(int r) {
  return lane_id() / 4 + 8 * (r / 2);
}
__device__ __forceinline__ int column_of(int n, int r) {
  return 8 * n + 2 * (lane_id() % 4) + r % 2;
}

template <int kRowTiles, int kTiles>
__device__ __forceinline__ void clear(float (&x)[kRowTiles][kTiles][4]) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r) x[m][n][r] = 0;
}

// This thread's part in copying tiles of kRows tokens, one after another. Neighbouring threads copy whole 32-byte
// sectors of a row. A thread's rows are equally spaced, so that one pointer moves over all of them.
template <class T, int kHead, int kRows>
struct TileCopy {
  static constexpr int kChunk = Pack<T>::kSize, kLanes = kHead / kChunk % 4 == 0 ? 4 : 2;
  static constexpr int kRowsAtOnce = kThreads / kLanes < kRows ? kThreads / kLanes : kRows;

  int row, column, head_size;
  int left;           // tokens from this thread's next row on
  std::int64_t step;  // elements between its rows
  const T* from;

  __device__ __forceinline__ TileCopy(const Tokens<const T>& tokens, int row0, int head)
      : row(static_cast<int>(threadIdx.x) / kLanes),
        column(static_cast<int>(threadIdx.x) % kLanes * kChunk),
        head_size(head),
        left(tokens.count - row0 - row),
        step(kRowsAtOnce * tokens.stride),
        from(tokens.first + (row0 + row) * tokens.stride + column) {}

  // Starts copying the next tokens into a tile. Rows past the last token are zero; nothing is written past the head.
  __device__ __forceinline__ void start(T* tile) {
    if (kRowsAtOnce * kLanes < kThreads && row >= kRowsAtOnce) return;
    T* to = tile + row * kPitch<T, kHead> + column;
#pragma unroll
    for (int pass = 0; pass < kRows; pass += kRowsAtOnce) {
#pragma unroll
      for (int c = 0; c < kHead; c += kLanes * kChunk) {
        if (column + c < head_size) cp_async_16(to + pass * kPitch<T, kHead> + c, from + c, left > 0);
      }
      from += step;
      left -= kRowsAtOnce;
    }
  }

  // Rounds this thread's part of a loaded tile, for products in TF32.
  __device__ __forceinline__ void round(T* tile) const {
    if constexpr (kIsTf32<T>) {
      if (kRowsAtOnce * kLanes < kThreads && row >= kRowsAtOnce) return;
#pragma unroll
      for (int pass = 0; pass < kRows; pass += kRowsAtOnce)
#pragma unroll
        for (int c = 0; c < kHead; c += kLanes * kChunk) {
          if (column + c >= head_size) continue;
          T* const chunk = tile + (row + pass) * kPitch<T, kHead> + column + c;
          Pack<T> values = load_pack(chunk);
#pragma unroll
          for (int i = 0; i < kChunk; ++i) values[i] = {std::bit_cast<float>(to_tf32(values[i].value))};
          store_pack(chunk, values);
        }
    }
  }
};

// Zeros for the channels of a padded head, in tiles with `rows` rows in total.
template <class T, int kHead>
__device__ __forceinline__ void clear_padding(T* tiles, int rows, int head_size) {
  if (head_size == kHead) return;
  for (int row = static_cast<int>(threadIdx.x); row < rows; row += kThreads)
    for (int c = head_size; c < kHead; c += Pack<T>::kSize) store_pack(tiles + row * kPitch<T, kHead> + c, Pack<T>{});
}

// ---- Products -------------------------------------------------------------------------------------------------------

struct Zero {
  float value[4] = {};
  __device__ __forceinline__ const float (&operator()(int, int) const)[4] { return value; }
};

template <class T>
__device__ __forceinline__ void multiply_tile(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                              const float (&c)[4]) {
  if constexpr (sizeof(T) == 2)
    mma_16816<T>(d, a, b, c);
  else
    mma_1688(d, a, b, c);
}

// scores[m][i][j] = start + sum over c of a[16m + i][c]·b[j][c]: 16·kRowTiles rows of one tile by 8·kTiles rows of
// another. start(m, n) gives this lane's four elements [n] of the m-th 16 rows.
template <int kHead, int kRowTiles, int kTiles, class T, class Start>
requires(kOnTensorCores<T>) __device__ __forceinline__
    void multiply_rows(float (&scores)[kRowTiles][kTiles][4], const T* a, const T* b, const Start& start) {
  constexpr int kHalf = Pack<T>::kSize, kDepth = 2 * kHalf;
  // One load of B gives two tiles of 8 rows; if there is only one tile, two steps of it.
  constexpr int kAcross = kTiles > 1 ? 2 : 1, kSteps = 2 / kAcross;
  const int lane = lane_id();
  // The row that this lane passes to ldmatrix. Order of the quarters: A down, then right; B right, then down.
  const T* a_row = a + lane % 16 * kPitch<T, kHead> + lane / 16 * kHalf;
  const int b_quarter = lane / 8;
  const T* b_row = b + (b_quarter / (2 * kSteps) * 8 + lane % 8) * kPitch<T, kHead> + b_quarter % (2 * kSteps) * kHalf;
#pragma unroll
  for (int k = 0; k < kHead; k += kSteps * kDepth) {
    std::uint32_t a_part[kSteps][kRowTiles][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
        ldmatrix_x4(a_part[step][m], a_row + m * kTileRows * kPitch<T, kHead> + k + step * kDepth);
#pragma unroll
    for (int n = 0; n < kTiles; n += kAcross) {
      std::uint32_t b_part[4];
      ldmatrix_x4(b_part, b_row + n * 8 * kPitch<T, kHead> + k);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int tile = n + i % kAcross, step = i % kSteps;
          const float(&before)[4] = scores[m][tile];
          multiply_tile<T>(scores[m][tile], a_part[step][m], {b_part[2 * i], b_part[2 * i + 1]},
                           k + step == 0 ? start(m, tile) : before);
        }
      }
    }
  }
}

template <int kHead, int kRowTiles, int kTiles, class Start>
__device__ __forceinline__ void multiply_rows(float (&scores)[kRowTiles][kTiles][4], const float* a, const float* b,
                                              const Start& start) {
  const float* b_row = b + column_of(0, 0) * kPitch<float, kHead>;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    const float* a_row = a + (m * kTileRows + row_of(0)) * kPitch<float, kHead>;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r) scores[m][n][r] = start(m, n)[r];
#pragma unroll 2
    for (int k = 0; k < kHead; k += 4) {
      const Pack<float> a0 = load_pack(a_row + k), a1 = load_pack(a_row + 8 * kPitch<float, kHead> + k);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const Pack<float> b0 = load_pack(b_row + n * 8 * kPitch<float, kHead> + k);
        const Pack<float> b1 = load_pack(b_row + (n * 8 + 1) * kPitch<float, kHead> + k);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          scores[m][n][0] += a0[i] * b0[i];
          scores[m][n][1] += a0[i] * b1[i];
          scores[m][n][2] += a1[i] * b0[i];
          scores[m][n][3] += a1[i] * b1[i];
        }
      }
    }
  }
}

// sum[m][i][c] += sum over j of weights[m][i][j]·b[j][c]: weights in registers by a tile of 8·kTiles rows.
template <int kHead, int kRowTiles, int kTiles, class T>
requires(sizeof(T) == 2) __device__ __forceinline__
    void add_weighted_rows(float (&sum)[kRowTiles][kHead / 8][4], const float (&weights)[kRowTiles][kTiles][4],
                           const T* b) {
  const int lane = lane_id();
  const T* b_row = b + lane % 16 * kPitch<T, kHead> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kTiles; k += 2) {
    std::uint32_t a_part[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&w)[4] = weights[m][k + i / 2];
        a_part[m][i] = pack_two<T>(w[2 * (i % 2)], w[2 * (i % 2) + 1]);
      }
#pragma unroll
    for (int c = 0; c < kHead / 8; c += 2) {
      std::uint32_t b_part[4];
      ldmatrix_x4_trans(b_part, b_row + k * 8 * kPitch<T, kHead> + c * 8);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma_16816<T>(sum[m][c], a_part[m], {b_part[0], b_part[1]});
        mma_16816<T>(sum[m][c + 1], a_part[m], {b_part[2], b_part[3]});
      }
    }
  }
}

template <int kHead, int kRowTiles, int kTiles>
__device__ __forceinline__ void add_weighted_rows(float (&sum)[kRowTiles][kHead / 8][4],
                                                  const float (&weights)[kRowTiles][kTiles][4], const float* b) {
  const int quad = lane_id() & ~3;
  const float* b_column = b + column_of(0, 0);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float upper = __shfl_sync(kAllLanes, weights[m][n][j % 2], quad + j / 2);
        const float lower = __shfl_sync(kAllLanes, weights[m][n][2 + j % 2], quad + j / 2);
        const float* row = b_column + (8 * n + j) * kPitch<float, kHead>;
#pragma unroll
        for (int c = 0; c < kHead / 8; ++c) {
          sum[m][c][0] += upper * row[8 * c];
          sum[m][c][1] += upper * row[8 * c + 1];
          sum[m][c][2] += lower * row[8 * c];
          sum[m][c][3] += lower * row[8 * c + 1];
        }
      }
    }
  }
}

// The order of a sum over j is free. Here the first four of eight are the even columns of `weights`, which each lane
// already has in the layout of A.
template <int kHead, int kRowTiles, int kTiles>
__device__ __forceinline__ void add_weighted_rows(float (&sum)[kRowTiles][kHead / 8][4],
                                                  const float (&weights)[kRowTiles][kTiles][4], const Tf32* b) {
  constexpr int kStep = kPitch<Tf32, kHead>;
  const Tf32* b_rows = b + column_of(0, 0) * kStep + row_of(0);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    std::uint32_t a_part[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) a_part[m][i] = to_tf32(weights[m][n][i / 2 + 2 * (i % 2)]);
#pragma unroll
    for (int c = 0; c < kHead / 8; ++c) {
      const Tf32* row = b_rows + 8 * n * kStep + 8 * c;
      const auto even = std::bit_cast<std::uint32_t>(row[0].value);
      const auto odd = std::bit_cast<std::uint32_t>(row[kStep].value);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) mma_1688(sum[m][c], a_part[m], {even, odd}, sum[m][c]);
    }
  }
}

// The destination of rows: a [B, T, NH, HS] tensor in the operands' type or in fp32, written or added to.
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

// Stores a warp's 16 rows, from token row0 on: rows g times factor[0] and rows g + 8 times factor[1].
template <class T, int kHead>
__device__ __forceinline__ void store_rows(const Destination& to, int row0, int head_size,
                                           const float (&rows)[kHead / 8][4], const float (&factor)[2]) {
  if constexpr (sizeof(T) == 2) {
    if (to.dtype == DType::fp32) return store_rows_as<float, kHead>(to, row0, head_size, rows, factor);
  }
  store_rows_as<std::conditional_t<sizeof(T) == 2, T, float>, kHead>(to, row0, head_size, rows, factor);
}

// ---- Softmax and dropout --------------------------------------------------------------------------------------------

// 2^x. With tensor cores its error is smaller than the rounding that follows; in fp32 it must be accurate.
template <class T>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (kOnTensorCores<T>)
    return exp2_approx(x);
  else
    return exp2f(x);
}

// ---- which keys a query sees ----------------------------------------------------------------------------------------

// The limits of this block's sample; may be null.
__device__ __forceinline__ const std::int32_t* limits_of_sample(const std::int32_t* limits, std::int64_t queries) {
  return limits == nullptr ? nullptr : limits + blockIdx.z * queries;
}

// The keys that a block's queries [first, first + count) see: each query sees all of [0, all), some see a part of [all,
// end). There is always a first key, even if no query sees one.
struct SeenKeys {
  int diagonal, tokens;  // query i sees key j if j <= i + diagonal (attention_diagonal) and j < tokens
  int all, end;

  template <class Attention>
  __device__ __forceinline__ SeenKeys(const Attention& a, int first, int count)
      : diagonal(static_cast<int>(attention_diagonal(a))),
        tokens(static_cast<int>(a.shape.kv_tokens)),
        all(min(first + diagonal + 1, tokens)),
        end(max(min(min(first + count, static_cast<int>(a.shape.q_tokens)) + diagonal, tokens), 1)) {}

  __device__ __forceinline__ bool sees(int query, int key) const { return key < min(query + diagonal + 1, tokens); }
  // Whether a query sees no key.
  __device__ __forceinline__ bool none_of(int query) const { return query + diagonal < 0; }

  // For a warp's queries from `query` on and keys from `key` on: a hidden key gets the score of padding, which has no
  // weight for any other scores. All limits follow from two numbers a lane: registers are scarce here.
  template <int kRowTiles, int kTiles>
  __device__ __forceinline__ void mask(float (&scores)[kRowTiles][kTiles][4], int query, int key) const {
    const int column0 = key + column_of(0, 0), left = tokens - column0;
    const int seen_by_first = query + row_of(0) + diagonal + 1 - column0;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int seen = min(seen_by_first + kTileRows * m + 8 * half, left);
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (8 * n + i >= seen) scores[m][n][2 * half + i] = -INFINITY;
      }
  }
};

// The same where intervals of keys limit what a query sees (AttentionKeys): each of the block's queries sees all of
// [from, all), some see a part of [begin, end). `begin` is the start of a stage of kRows keys.
template <int kRows>
struct LimitedKeys {
  const std::int32_t *begins, *ends;  // of this sample; may be null
  int diagonal, tokens, queries, first_key;
  int begin, from, all, end;

  template <class Attention>
  __device__ __forceinline__ LimitedKeys(const Attention& a, int first, int count)
      : begins(limits_of_sample(a.keys.begin, a.shape.q_tokens)),
        ends(limits_of_sample(a.keys.end, a.shape.q_tokens)),
        diagonal(static_cast<int>(attention_diagonal(a))),
        tokens(static_cast<int>(a.shape.kv_tokens)),
        queries(static_cast<int>(a.shape.q_tokens)),
        first_key(static_cast<int>(a.window.keys.first)) {
    const int last = min(first + count, queries) - 1;
    begin = min(first_of(first), tokens - 1) / kRows * kRows;
    from = first_of(last);
    all = keys_of(first);
    end = max(keys_of(last), begin + 1);
  }

  // Of a query past the last one: those of the last one.
  __device__ __forceinline__ int first_of(int query) const {
    return begins == nullptr ? 0 : max(begins[min(query, queries - 1)] - first_key, 0);
  }
  __device__ __forceinline__ int keys_of(int query) const {
    const int seen = min(query + diagonal + 1, tokens);
    return ends == nullptr ? seen : min(seen, ends[min(query, queries - 1)] - first_key);
  }
  // Whether all queries see kRows keys from `key` on.
  __device__ __forceinline__ bool all_see(int key) const { return key >= from && key + kRows <= all; }

  template <int kRowTiles, int kTiles>
  __device__ __forceinline__ void mask(float (&scores)[kRowTiles][kTiles][4], int query, int key) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = query + kTileRows * m + row_of(2 * half), first = first_of(row), seen = keys_of(row);
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int column = key + column_of(n, i);
            if (column < first || column >= seen) scores[m][n][2 * half + i] = -INFINITY;
          }
      }
  }
};

// The first key of the first turn.
__device__ __forceinline__ int begin(const SeenKeys&) {
  return 0;
}
template <int kRows>
__device__ __forceinline__ int begin(const LimitedKeys<kRows>& seen) {
  return seen.begin;
}

// Calls turn(key, is_masked) for kRows keys at a time: whether some of them may be hidden from a query, as a constant.
template <int kRows, class Turn>
__device__ __forceinline__ void take_turns(const SeenKeys& seen, const Turn& turn) {
  int key = 0;
  for (; key + kRows <= seen.all; key += kRows) turn(key, std::false_type{});
  for (; key < seen.end; key += kRows) turn(key, std::true_type{});
}
template <int kRows, class Turn>
__device__ __forceinline__ void take_turns(const LimitedKeys<kRows>& seen, const Turn& turn) {
  for (int key = seen.begin; key < seen.end; key += kRows)
    if (seen.all_see(key))
      turn(key, std::false_type{});
    else
      turn(key, std::true_type{});
}

// The elements of one head's P that are kept. An element is known by its index in P of the global batch.
//
// A lane's elements are in different Philox blocks, and the four elements of a block are in two or four lanes. So each
// block is drawn once per warp, by one lane; then the lanes exchange the results: a bit per element, four bits per
// block. The first key of a tile may be any word of its block; then the last keys are in one more block.
struct KeepMask {
  std::uint64_t seed, stream, first;  // index of the block's P[0][0]
  std::uint64_t keys;                 // of the whole: elements between rows of P
  std::uint32_t threshold;
  float scale;  // of kept elements

  __device__ __forceinline__ KeepMask(const AttentionDropout& d, const AttentionWindow& w)
      : seed(d.seed),
        stream(mask_stream(d.stream, d.stream_offset)),
        first(first_of(w)),
        keys(static_cast<std::uint64_t>(w.keys.total)),
        threshold(drop_threshold(d.p)),
        scale(1 / (1 - d.p)) {}

  static __device__ __forceinline__ std::uint64_t first_of(const AttentionWindow& w) {
    const std::int64_t head = w.samples.at(blockIdx.z) * w.heads.total + w.heads.first + blockIdx.y;
    return static_cast<std::uint64_t>((head * w.queries.total + w.queries.first) * w.keys.total + w.keys.first);
  }

  // Bit 4n + r is for this lane's element [n][r] of a tile: rows are queries from `query` on, columns are keys from
  // `key` on. Of the four lanes that share two rows, two draw the blocks of the upper row, alternately, and two those
  // of the lower row.
  template <int kTiles>
  __device__ __forceinline__ std::uint32_t of_queries(int query, int key) const {
    static_assert(4 * kTiles <= 32);
    if (threshold == 0) return ~0u;
    const std::uint64_t begin = first + static_cast<std::uint64_t>(query + row_of(0)) * keys + key;
    const unsigned lane = lane_id(), t = lane % 4, skipped = begin % 4;  // the same for the lower row, 8 below
    std::uint64_t block = begin / 4 + t / 2 * 2 * keys + t % 2;
    std::uint32_t drawn = 0, last = 0;
#pragma unroll 1
    for (int n = 0; n < kTiles || (n == kTiles && skipped != 0); ++n, block += 2) {
      last = kept_of(block);
      drawn |= n < 8 ? last << 4 * n : 0;
    }
    // The first block of eight keys also continues the eight keys before it: hence one more draw.
    std::uint32_t next = drawn >> 4;
    if constexpr (kTiles == 8) next |= last << 28;
    const bool is_shifted = __any_sync(kAllLanes, skipped != 0);
    std::uint32_t kept = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned upper = (lane & ~3u) + 2 * half;
      const std::uint32_t next_bits = is_shifted ? __shfl_sync(kAllLanes, next, static_cast<int>(upper)) : 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const unsigned place = 2 * t + i + skipped;
        const std::uint32_t here = __shfl_sync(kAllLanes, drawn, static_cast<int>(upper + place / 4 % 2));
        kept |= ((place >= 8 ? next_bits : here) >> place % 4 & 0x11111111u) << (2 * half + i);
      }
    }
    return kept;
  }

  // The same for a tile whose rows are keys and whose columns are queries. Lane 8q + c draws block q of column c of
  // each eight. The additional blocks, for 16 keys and their shift, are shared among the four lanes of a column.
  template <int kTiles>
  __device__ __forceinline__ std::uint32_t of_keys(int key, int query) const {
    static_assert(4 * kTiles <= 32);
    if (threshold == 0) return ~0u;
    const std::uint64_t corner = first + static_cast<std::uint64_t>(query) * keys + key;
    const unsigned lane = lane_id(), quarter = lane / 8;
    const std::uint64_t begin = corner + lane % 8 * keys;
    std::uint32_t drawn = 0, next_bits = 0;
    const int draws = kTiles + (begin % 4 != 0 ? (kTiles + 3) / 4 : 0);
#pragma unroll 1
    for (int e = 0; e < draws; ++e) {
      const bool is_next = e >= kTiles;
      const unsigned n = is_next ? 4 * (e - kTiles) + quarter : e;
      const std::uint32_t bits = kept_of(begin / 4 + (is_next ? 4 : quarter) + n * 2 * keys) << 4 * n;
      drawn |= is_next ? 0 : bits;
      next_bits |= is_next ? bits : 0;
    }
    const bool is_shifted = (corner % 4 | keys % 4) != 0;  // begin % 4 != 0 in some lane
    if (is_shifted) {
      next_bits |= __shfl_xor_sync(kAllLanes, next_bits, 8);
      next_bits |= __shfl_xor_sync(kAllLanes, next_bits, 16);
    }
    std::uint32_t kept = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned column = column_of(0, i);
      const unsigned skipped = (corner + column * keys) % 4;
      const std::uint32_t last = is_shifted ? __shfl_sync(kAllLanes, next_bits, static_cast<int>(column)) : 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned place = row_of(2 * half) + skipped;
        const std::uint32_t here = __shfl_sync(kAllLanes, drawn, static_cast<int>(column + place / 4 % 4 * 8));
        kept |= ((place >= 16 ? last : here) >> place % 4 & 0x11111111u) << (2 * half + i);
      }
    }
    return kept;
  }

  // A bit for each of a block's four elements (random_bits).
  __device__ __forceinline__ std::uint32_t kept_of(std::uint64_t block) const {
    const Philox4 bits = philox4x32(seed, stream, block);
    std::uint32_t kept = 0;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      // g++ 12 mistakes the index if UBSan checks a shift by it too.
      const std::uint32_t drawn = bits.word[word];
      kept |= (drawn >= threshold ? 1u : 0u) << word;
    }
    return kept;
  }
};

// Whether KeepMask keeps an element.
__device__ __forceinline__ bool is_kept(std::uint32_t kept, int n, int r) {
  return (kept >> (4 * n + r) & 1u) != 0;
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
