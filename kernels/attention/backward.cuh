// Shared by the two halves of the backward pass. Both compute P and dS. This costs time, but no block adds to another
// one's result: there are no atomics, and the only scratch is two numbers a query (delta.cu).
#pragma once

#include "kernels/attention/tiles.cuh"

namespace isobar::ISOBAR_CUDA_NAMESPACE::attention {

// The workspace: -log2(sum of exp of scores) of every query, then -delta of every query. A query that sees no key has
// -inf for the first. The queries of a head are padded with (-inf, 0), so that P = 2^-inf = 0 there.
struct QueryTerms {
  const float *minus_lse, *minus_delta;  // of this block's head

  __device__ __forceinline__ explicit QueryTerms(const AttentionBwdArgs& a) {
    const std::int64_t padded = attention_padded_queries(a.shape.q_tokens);
    minus_lse = static_cast<const float*>(a.workspace) + (blockIdx.z * a.shape.heads + blockIdx.y) * padded;
    minus_delta = minus_lse + a.shape.batch * a.shape.heads * padded;
  }
};

// The threads that copy the terms of the next kRows queries into shared memory: first -lse, then -delta.
template <int kRows>
struct TermsCopy {
  static constexpr int kChunk = Pack<float>::kSize, kCopies = 2 * kRows / kChunk;
  static_assert(kCopies <= kThreads);

  const float* from;

  __device__ __forceinline__ TermsCopy(const AttentionBwdArgs& a, int first) {
    const QueryTerms terms(a);
    const int column = first + static_cast<int>(threadIdx.x) * kChunk;
    from = column < first + kRows ? terms.minus_lse + column : terms.minus_delta + column - kRows;
  }
  __device__ __forceinline__ void start(float* terms) {
    if (threadIdx.x < kCopies) cp_async_16(terms + threadIdx.x * kChunk, from);
    from += kRows;
  }
};

// The queries that see the block's keys [first, first + count): from `all` on a query sees all of them, in [begin, all)
// it may see some. `begin` is the start of a stage of kRows queries; if no query sees a key, of the last stage.
template <int kRows>
struct SeeingQueries {
  int diagonal, begin, all;  // query i sees key j if j <= i + diagonal (attention_diagonal)

  __device__ __forceinline__ SeeingQueries(const AttentionBwdArgs& a, int first, int count)
      : diagonal(static_cast<int>(attention_diagonal(a))) {
    const int queries = static_cast<int>(a.shape.q_tokens), keys = static_cast<int>(a.shape.kv_tokens);
    begin = min(max(first - diagonal, 0), queries - 1) / kRows * kRows;
    all = min(min(first + count, keys) - 1 - diagonal, queries);
  }

  // The same as SeenKeys::mask, for a warp's keys from `key` on and queries from `query` on.
  template <int kRowTiles, int kTiles>
  __device__ __forceinline__ void mask(float (&scores)[kRowTiles][kTiles][4], int key, int query) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          if (key + kTileRows * m + row_of(r) > query + column_of(n, r) + diagonal) scores[m][n][r] = -INFINITY;
  }
};

// The same where intervals of keys limit what a query sees (AttentionKeys): some of the queries [begin, end) see a key
// of the block, each of [from, all) sees all of them.
template <int kRows>
struct LimitedQueries {
  const std::int32_t *begins, *ends;  // of this sample; may be null
  int diagonal, queries, first_key;
  int begin, from, all, end;

  __device__ __forceinline__ LimitedQueries(const AttentionBwdArgs& a, int first, int count)
      : begins(limits_of_sample(a.keys.begin, a.shape.q_tokens)),
        ends(limits_of_sample(a.keys.end, a.shape.q_tokens)),
        diagonal(static_cast<int>(attention_diagonal(a))),
        queries(static_cast<int>(a.shape.q_tokens)),
        first_key(static_cast<int>(a.window.keys.first)) {
    const int last = min(first + count, static_cast<int>(a.shape.kv_tokens)) - 1;
    begin = min(first_query(first), queries - 1) / kRows * kRows;
    from = first_query(last);
    all = begins == nullptr ? queries : first_above(begins, first);
    end = max(begins == nullptr ? queries : first_above(begins, last), begin + 1);
  }

  // The first query that sees a key, if no query begins behind it.
  __device__ __forceinline__ int first_query(int key) const {
    const int query = max(key - diagonal, 0);
    return min(ends == nullptr ? query : max(query, first_above(ends, key)), queries);
  }
  // The first query whose limit lies behind a key.
  __device__ __forceinline__ int first_above(const std::int32_t* limits, int key) const {
    int low = 0, high = queries;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (limits[middle] - first_key > key)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  __device__ __forceinline__ bool sees(int query, int key) const {
    const int own = min(query, queries - 1);
    return key <= query + diagonal && (begins == nullptr || key >= begins[own] - first_key) &&
           (ends == nullptr || key < ends[own] - first_key);
  }

  template <int kRowTiles, int kTiles>
  __device__ __forceinline__ void mask(float (&scores)[kRowTiles][kTiles][4], int key, int query) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          if (!sees(query + column_of(n, r), key + kTileRows * m + row_of(r))) scores[m][n][r] = -INFINITY;
  }
};

// Calls turn(query, is_masked) for kRows queries at a time.
template <int kRows, class Turn>
__device__ __forceinline__ void take_turns(const SeeingQueries<kRows>& seeing, int queries, const Turn& turn) {
  int query = seeing.begin;
  for (; query < seeing.all; query += kRows) turn(query, std::true_type{});
  for (; query < queries; query += kRows) turn(query, std::false_type{});
}
template <int kRows, class Turn>
__device__ __forceinline__ void take_turns(const LimitedQueries<kRows>& seeing, int, const Turn& turn) {
  for (int query = seeing.begin; query < seeing.end; query += kRows)
    if (query >= seeing.from && query + kRows <= seeing.all)
      turn(query, std::false_type{});
    else
      turn(query, std::true_type{});
}

// From a score and the product dO·V to dropout(P) and dS, in place. Without dropout the product started with -delta, so
// it already is dP - delta.
template <class T, bool kDropout>
__device__ __forceinline__ void differentiate(float& score, float& dp, float score_scale, float minus_lse,
                                              float minus_delta, bool kept, float keep_scale) {
  const float p = exponential<T>(fmaf(score, score_scale, minus_lse));
  if constexpr (kDropout) {
    score = kept ? p * keep_scale : 0;
    dp = p * (kept ? fmaf(dp, keep_scale, minus_delta) : minus_delta);
  } else {
    score = p;
    dp *= p;
  }
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::attention
