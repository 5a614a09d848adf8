// The emulator itself: what its collectives, tensor-core instructions and asynchronous copies compute, against plain
// loops, under every schedule; and that it finds what it promises to find.
#include "tests/harness/error_of.h"
#include "tests/harness/testing.h"

#if ISOBAR_HAS_EMULATOR

#define ISOBAR_EMULATE
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/attention/heads.cuh"
#include "kernels/common/check.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"
#include "kernels/emulator/schedule.h"

namespace isobar::emulator {
namespace {

using testing::ContainsSubstring;

class KeepSchedule {
 public:
  ~KeepSchedule() { set_schedule(before_); }

 private:
  Schedule before_ = current_schedule();
};

void in_every_schedule(const std::function<void()>& body) {
  const KeepSchedule keep;
  for (const Schedule& schedule : kTestSchedules) {
    set_schedule(schedule);
    INFO("schedule " << name_of(schedule));
    body();
  }
}

// The sentence with which a launch fails.
std::string failure_of(const std::function<void()>& run) {
  return testing::error_of(run, "no failure");
}

// Small whole numbers, different at every index: sums of them are exact in fp32.
float number(int i) {
  return static_cast<float>((i * 37 + 11) % 64 - 32);
}

// ---- Collectives ----------------------------------------------------------------------------------------------------

constexpr int kShuffles = 6;

__global__ void shuffle_kernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x), value = 100 + lane;
  int* mine = out + lane * kShuffles;
  mine[0] = __shfl_sync(kAllLanes, value, 5);
  mine[1] = __shfl_sync(kAllLanes, value, lane + 3, 8);
  mine[2] = __shfl_xor_sync(kAllLanes, value, 9);
  mine[3] = __shfl_down_sync(kAllLanes, value, 4, 16);
  mine[4] = __shfl_up_sync(kAllLanes, value, 4, 16);
  mine[5] = static_cast<int>(__ballot_sync(kAllLanes, lane % 3 == 0));
}

TEST_CASE("a Divisor divides as the language does") {
  constexpr int kLargest = std::numeric_limits<int>::max();
  for (std::int64_t divisor : {1, 2, 3, 5, 7, 8, 641, 720, 65535, 65536, 65537, 1 << 30, kLargest - 1, kLargest}) {
    const Divisor by(divisor);
    for (std::int64_t multiple : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, kLargest / divisor / 2,
                                  kLargest / divisor - 1, kLargest / divisor}) {
      for (std::int64_t n :
           {multiple * divisor - 1, multiple * divisor, multiple * divisor + 1, multiple, multiple + 17}) {
        if (n < 0 || n > kLargest) continue;
        const auto [quotient, remainder] = by.divide(static_cast<int>(n));
        INFO(n << " / " << divisor);
        CHECK(quotient == n / divisor);
        CHECK(remainder == n % divisor);
      }
    }
  }
  CHECK_THROWS_AS(Divisor(0), Error);
  CHECK_THROWS_AS(Divisor(std::int64_t{1} << 31), Error);
}

TEST_CASE("emulator: shuffles and votes") {
  in_every_schedule([] {
    std::vector<int> out(32 * kShuffles, -1);
    launch("shuffle", shuffle_kernel, 1, 32, 0, nullptr, out.data());
    unsigned ballot = 0;
    for (int lane = 0; lane < 32; lane += 3) ballot |= 1u << lane;
    for (int lane = 0; lane < 32; ++lane) {
      INFO("lane " << lane);
      const int* mine = out.data() + lane * kShuffles;
      CHECK(mine[0] == 105);
      CHECK(mine[1] == 100 + lane / 8 * 8 + (lane + 3) % 8);
      CHECK(mine[2] == 100 + (lane ^ 9));
      CHECK(mine[3] == 100 + (lane % 16 + 4 < 16 ? lane + 4 : lane));
      CHECK(mine[4] == 100 + (lane % 16 >= 4 ? lane - 4 : lane));
      CHECK(static_cast<unsigned>(mine[5]) == ballot);
    }
  });
}

// The halves of a warp take different ways and exchange among themselves; some lanes of the second have left.
__global__ void half_warp_kernel(float* out) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane >= 28) return;
  if (lane < 16)
    out[lane] = __shfl_sync(0xffffu, static_cast<float>(lane), 3);
  else
    out[lane] = __shfl_xor_sync(0xffff0000u, static_cast<float>(lane), 8);
}

TEST_CASE("emulator: part of a warp, and lanes that have left") {
  in_every_schedule([] {
    std::vector<float> out(32, -1);
    launch("half_warp", half_warp_kernel, 1, 32, 0, nullptr, out.data());
    for (int lane = 0; lane < 32; ++lane) {
      INFO("lane " << lane);
      if (lane < 16)
        CHECK(out[lane] == 3);
      else if (lane >= 28)
        CHECK(out[lane] == -1);
      else if ((lane ^ 8) < 28)
        CHECK(out[lane] == (lane ^ 8));
      else
        CHECK(std::isnan(out[lane]));  // from a lane that is not there
    }
  });
}

template <class T>
__global__ void reduce_kernel(const T* in, T* out) {
  const T value = in[threadIdx.x];
  T* mine = out + 4 * threadIdx.x;
  mine[0] = warp_sum(value);
  mine[1] = warp_max(value);
  mine[2] = block_sum(value);
  mine[3] = block_max(value);
}

TEMPLATE_TEST_CASE("emulator: reductions", "", float, double) {
  for (const int threads : {32, 96, 1024}) {
    std::vector<TestType> in(threads);
    for (int i = 0; i < threads; ++i) in[i] = static_cast<TestType>(number(i));
    in_every_schedule([&] {
      INFO(threads << " threads");
      std::vector<TestType> out(4 * threads, -1);
      launch("reduce", reduce_kernel<TestType>, 1, threads, 0, nullptr, in.data(), out.data());
      for (int i = 0; i < threads; ++i) {
        const auto warp = in.begin() + i / 32 * 32;
        REQUIRE(out[4 * i] == std::accumulate(warp, warp + 32, TestType(0)));
        REQUIRE(out[4 * i + 1] == *std::max_element(warp, warp + 32));
        REQUIRE(out[4 * i + 2] == std::accumulate(in.begin(), in.end(), TestType(0)));
        REQUIRE(out[4 * i + 3] == *std::max_element(in.begin(), in.end()));
      }
    });
  }
}

__global__ void integer_reduce_kernel(const int* in, int* out) {
  const int value = in[threadIdx.x];
  int* mine = out + 3 * threadIdx.x;
  mine[0] = warp_min(value);
  mine[1] = block_min(value);
  mine[2] = block_sum(value);
}

TEST_CASE("emulator: reductions of integers") {
  for (const int threads : {32, 96, 1024}) {
    std::vector<int> in(threads);
    for (int i = 0; i < threads; ++i) in[i] = (i * 7919) % 1009 + 5;
    in_every_schedule([&] {
      INFO(threads << " threads");
      std::vector<int> out(3 * threads, -1);
      launch("reduce", integer_reduce_kernel, 1, threads, 0, nullptr, in.data(), out.data());
      for (int i = 0; i < threads; ++i) {
        const auto warp = in.begin() + i / 32 * 32;
        REQUIRE(out[3 * i] == *std::min_element(warp, warp + 32));
        REQUIRE(out[3 * i + 1] == *std::min_element(in.begin(), in.end()));
        REQUIRE(out[3 * i + 2] == std::accumulate(in.begin(), in.end(), 0));
      }
    });
  }
}

__global__ void count_kernel(int* counts, int* total) {
  const int n = __syncthreads_count(threadIdx.x % 3 == 0);
  const int any = __syncthreads_or(threadIdx.x == 40), none = __syncthreads_or(0);
  const int all = __syncthreads_and(1), not_all = __syncthreads_and(threadIdx.x != 40);
  counts[global_thread()] = n + 1000 * any + 2000 * none + 4000 * all + 8000 * not_all;
  atomicAdd(total, 1);
}

TEST_CASE("emulator: block votes and atomics, over a grid") {
  in_every_schedule([] {
    std::vector<int> counts(3 * 70, -1);
    int total = 0;
    launch("count", count_kernel, 3, 70, 0, nullptr, counts.data(), &total);
    CHECK(counts == std::vector<int>(3 * 70, 24 + 1000 + 4000));
    CHECK(total == 3 * 70);
  });
}

__global__ void index_kernel(int* seen) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  ++seen[block * blockDim.x * blockDim.y * blockDim.z + thread];
}

TEST_CASE("emulator: every thread of a three-dimensional grid runs once, and an empty grid runs nothing") {
  in_every_schedule([] {
    std::vector<int> seen(5 * 3 * 2 * 4 * 2 * 3, 0);
    launch("index", index_kernel, dim3(5, 3, 2), dim3(4, 2, 3), 0, nullptr, seen.data());
    CHECK(seen == std::vector<int>(seen.size(), 1));
    launch("index", index_kernel, dim3(5, 0, 2), dim3(4, 2, 3), 0, nullptr, seen.data());
    CHECK(seen == std::vector<int>(seen.size(), 1));
  });
}

// ---- Tensor cores ---------------------------------------------------------------------------------------------------

// C[16, 8] = A[16, 16]·B[16, 8], twice, so that a second product cannot take the first one's place. A is loaded by
// ldmatrix; B, stored [k][n], by its transposing form; b_rows, the same stored [n][k], by the plain one. The latter's
// product is added to the index of the element.
template <class T>
__global__ void mma_kernel(const T* a, const T* b, const T* b_rows, float* c, float* c_rows) {
  ISOBAR_DYNAMIC_SHARED(T, shared);
  T *a_tile = shared, *b_tile = shared + 16 * 16, *rows_tile = shared + 2 * 16 * 16;
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 16 * 16; i += 32) {
    a_tile[i] = a[i];
    b_tile[i] = b[i];
    rows_tile[i] = b_rows[i];
  }
  __syncthreads();
  const int row = lane % 16, column = lane / 16 * 8;
  std::uint32_t a_part[4], b_part[4], rows_part[4];
  ldmatrix_x4(a_part, a_tile + row * 16 + column);
  ldmatrix_x4_trans(b_part, b_tile + row * 16 + column);
  ldmatrix_x4(rows_part, rows_tile + (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8);
  for (int half = 0; half < 2; ++half) {
    const auto index_of = [&](int i) { return (lane / 4 + 8 * (i / 2)) * 16 + 8 * half + lane % 4 * 2 + i % 2; };
    float d[4] = {}, d_rows[4] = {NAN, NAN, NAN, NAN}, start[4];
    for (int i = 0; i < 4; ++i) start[i] = static_cast<float>(index_of(i));
    mma_16816<T>(d, a_part, {b_part[2 * half], b_part[2 * half + 1]});
    mma_16816<T>(d_rows, a_part, {rows_part[2 * half], rows_part[2 * half + 1]}, start);
    for (int i = 0; i < 4; ++i) {
      const int to = index_of(i);
      c[to] = d[i];
      c_rows[to] = d_rows[i];
    }
  }
}

TEMPLATE_TEST_CASE("emulator: mma.sync and ldmatrix", "", bf16, fp16) {
  std::vector<TestType> a(256), b(256), b_rows(256);
  std::vector<float> expected(256, 0);
  for (int i = 0; i < 256; ++i) {
    a[i] = TestType(number(i));
    b[i] = TestType(number(3 * i + 5));
    b_rows[i % 16 * 16 + i / 16] = b[i];
  }
  for (int i = 0; i < 256; ++i)
    for (int k = 0; k < 16; ++k)
      expected[i] += static_cast<float>(a[i / 16 * 16 + k]) * static_cast<float>(b[k * 16 + i % 16]);
  in_every_schedule([&] {
    std::vector<float> c(256, NAN), c_rows(256, NAN);
    launch("mma", mma_kernel<TestType>, 1, 32, 3 * 256 * sizeof(TestType), nullptr, a.data(), b.data(), b_rows.data(),
           c.data(), c_rows.data());
    CHECK(c == expected);
    for (int i = 0; i < 256; ++i) c_rows[i] -= static_cast<float>(i);
    CHECK(c_rows == expected);
  });
}

// C[16, 16] = A[16, 8]·Bᵀ + C in tf32, both stored [row][k]. Quarters of A are ordered down, then right; those of B
// right, then down.
__global__ void mma_tf32_kernel(const float* a, const float* b, float* c) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 128; i += 32) {
    shared[i] = a[i];
    shared[128 + i] = b[i];
  }
  __syncthreads();
  std::uint32_t a_part[4], b_part[4];
  ldmatrix_x4(a_part, shared + lane % 16 * 8 + lane / 16 * 4);
  ldmatrix_x4(b_part, shared + 128 + (lane / 16 * 8 + lane % 8) * 8 + lane / 8 % 2 * 4);
  for (auto* part : {&a_part, &b_part})
    for (std::uint32_t& word : *part) word = to_tf32(std::bit_cast<float>(word));
  for (int half = 0; half < 2; ++half) {
    const auto index_of = [&](int i) { return (lane / 4 + 8 * (i / 2)) * 16 + 8 * half + lane % 4 * 2 + i % 2; };
    float d[4] = {NAN, NAN, NAN, NAN}, start[4];
    for (int i = 0; i < 4; ++i) start[i] = c[index_of(i)];
    mma_1688(d, a_part, {b_part[2 * half], b_part[2 * half + 1]}, start);
    for (int i = 0; i < 4; ++i) c[index_of(i)] = d[i];
  }
}

TEST_CASE("emulator: mma.sync of tf32") {
  // A has 13 bits of a fraction, of which the product has 10; all sums are exact.
  const auto rounded = [](float x) { return std::copysign(std::floor(std::fabs(x) * 1024 + 0.5f) / 1024, x); };
  std::vector<float> a(128), b(128), start(256), expected(256);
  for (int i = 0; i < 128; ++i) {
    a[i] = static_cast<float>((i % 3 == 0 ? -1 : 1) * (8192 + 37 * i)) / 8192;
    b[i] = static_cast<float>(i * i % 7 - 3) / 2;
  }
  for (int i = 0; i < 256; ++i) {
    start[i] = static_cast<float>(i);
    for (int k = 0; k < 8; ++k) expected[i] += rounded(a[i / 16 * 8 + k]) * b[i % 16 * 8 + k];
    expected[i] += start[i];
  }
  in_every_schedule([&] {
    std::vector<float> c = start;
    launch("mma", mma_tf32_kernel, 1, 32, 256 * sizeof(float), nullptr, a.data(), b.data(), c.data());
    CHECK(c == expected);
  });
  const auto in_tf32 = [](float x) { return std::bit_cast<float>(to_tf32(x)); };
  CHECK(in_tf32(1 + 0x1p-11f) == 1 + 0x1p-10f);  // a tie, away from zero
  CHECK(in_tf32(-1 - 0x1p-11f) == -1 - 0x1p-10f);
  CHECK(in_tf32(1 + 0x1p-11f - 0x1p-23f) == 1);
  CHECK(std::isinf(in_tf32(std::numeric_limits<float>::max())));
  CHECK(in_tf32(-HUGE_VALF) == -HUGE_VALF);
  for (const std::uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xffc00000u})
    CHECK(std::isnan(in_tf32(std::bit_cast<float>(nan))));
}

// One head of 48 channels, forward and backward, in fp32: o, lse, dq, dk, dv.
struct Attention {
  static constexpr std::int64_t kTokens = 40, kHead = 48;
  struct alignas(16) Tokens {
    float value[kTokens * kHead];
  };
  std::vector<Tokens> in = std::vector<Tokens>(4), out = std::vector<Tokens>(4);  // q, k, v, dO; o, dq, dk, dv
  std::vector<float> lse = std::vector<float>(kTokens);
  std::vector<Tokens> workspace = std::vector<Tokens>(1);

  Attention() {
    for (Tokens& tokens : in)
      for (float& x : tokens.value) x = std::sin(static_cast<float>(&x - in[0].value));
  }
  AttentionFwdArgs fwd(bool tf32) {
    const AttentionFwdArgs arguments{.shape = {1, 1, kTokens, kTokens, kHead},
                                     .dtype = DType::fp32,
                                     .scale = 0.25,
                                     .tf32 = tf32,
                                     .dropout = {},
                                     .q = &in[0],
                                     .k = &in[1],
                                     .v = &in[2],
                                     .o = &out[0],
                                     .lse = lse.data(),
                                     .q_stride = kHead,
                                     .k_stride = kHead,
                                     .v_stride = kHead,
                                     .o_stride = kHead};
    return checked_attention(arguments);
  }
  AttentionBwdArgs bwd(bool tf32) {
    const AttentionBwdArgs arguments{.shape = {1, 1, kTokens, kTokens, kHead},
                                     .dtype = DType::fp32,
                                     .scale = 0.25,
                                     .tf32 = tf32,
                                     .dropout = {},
                                     .q = &in[0],
                                     .k = &in[1],
                                     .v = &in[2],
                                     .o = &out[0],
                                     .lse = lse.data(),
                                     .d_o = &in[3],
                                     .dq = &out[1],
                                     .dk = &out[2],
                                     .dv = &out[3],
                                     .q_stride = kHead,
                                     .k_stride = kHead,
                                     .v_stride = kHead,
                                     .o_stride = kHead,
                                     .do_stride = kHead,
                                     .dq_stride = kHead,
                                     .dk_stride = kHead,
                                     .dv_stride = kHead,
                                     .workspace = workspace.data()};
    return checked_attention(arguments);
  }
  std::vector<float> outputs() const {
    std::vector<float> all = lse;
    for (const Tokens& tokens : out) all.insert(all.end(), std::begin(tokens.value), std::end(tokens.value));
    return all;
  }
};

std::vector<float> chosen_attention(bool tf32) {
  Attention a;
  attention_fwd(a.fwd(tf32));
  attention_bwd(a.bwd(tf32));
  return a.outputs();
}
template <class T, int kHead>
std::vector<float> attention_of(attention::Head<T, kHead>) {
  Attention a;
  attention::Head<T, kHead>::forward(a.fwd(false), nullptr);
  attention::launch_delta(a.bwd(false), nullptr);
  attention::Head<T, kHead>::backward(a.bwd(false), nullptr);
  return a.outputs();
}

TEST_CASE("emulator: attention in fp32 is that of the plain kernels without tf32, and of tensor cores with it") {
  in_every_schedule([] {
    const std::vector<float> plain = chosen_attention(false), rounded = chosen_attention(true);
    CHECK(plain == attention_of(attention::Head<float, 64>()));
    CHECK(rounded == attention_of(attention::Head<Tf32, 48>()));
    CHECK(plain != rounded);
  });
}

// ---- Asynchronous copies --------------------------------------------------------------------------------------------

struct CopyResult {
  float before_wait, after_one, after_all, zero_filled;
};

__global__ void copy_kernel(const float* in, CopyResult* out) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  cp_async_16(shared, in);
  cp_async_commit();
  cp_async_16(shared + 4, in + 4);
  cp_async_16(shared + 8, in, false);
  cp_async_commit();
  out->before_wait = shared[0];
  cp_async_wait<1>();
  out->after_one = std::isnan(shared[4]) ? shared[3] : -1;
  cp_async_wait<0>();
  out->after_all = shared[7];
  out->zero_filled = shared[11];
}

TEST_CASE("emulator: asynchronous copies land at their wait and not before") {
  alignas(16) const float in[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  CopyResult out = {};
  launch("copy", copy_kernel, 1, 1, 12 * sizeof(float), nullptr, in, &out);
  CHECK(std::isnan(out.before_wait));
  CHECK(out.after_one == 4);
  CHECK(out.after_all == 8);
  CHECK(out.zero_filled == 0);
}

// Copies a row through shared memory; a reader that does not wait sees NaN.
template <bool kWait>
__global__ void forgotten_wait_kernel(const float* in, float* out) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  cp_async_16(shared + 4 * threadIdx.x, in + 4 * threadIdx.x);
  cp_async_commit();
  if constexpr (kWait) cp_async_wait<0>();
  __syncthreads();
  out[threadIdx.x] = shared[4 * threadIdx.x];
}

TEST_CASE("emulator: a forgotten wait is seen") {
  alignas(16) std::array<float, 256> in;
  std::iota(in.begin(), in.end(), 0.0f);
  in_every_schedule([&] {
    std::vector<float> right(64), wrong(64);
    launch("waits", forgotten_wait_kernel<true>, 1, 64, sizeof in, nullptr, in.data(), right.data());
    launch("forgets", forgotten_wait_kernel<false>, 1, 64, sizeof in, nullptr, in.data(), wrong.data());
    for (int i = 0; i < 64; ++i) {
      CHECK(right[i] == 4 * i);
      CHECK(std::isnan(wrong[i]));
    }
  });
}

// ---- What it must find ----------------------------------------------------------------------------------------------

__global__ void unwritten_kernel(float* out) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  out[blockIdx.x] = shared[0];
  shared[0] = 1;
}

TEST_CASE("emulator: dynamic shared memory starts as NaN in every block") {
  std::vector<float> out(3, 0);
  launch("unwritten", unwritten_kernel, 3, 1, sizeof(float), nullptr, out.data());
  for (const float value : out) CHECK(std::isnan(value));
}

#if !defined(__SANITIZE_THREAD__)  // it reports the race: lab/faults/emulator_faults.cc

// Hands each value to the thread at the other end of the block.
template <bool kBarrier>
__global__ void reverse_kernel(const float* in, float* out) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  shared[threadIdx.x] = in[threadIdx.x];
  if constexpr (kBarrier) __syncthreads();
  out[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST_CASE("emulator: a missing __syncthreads gives a wrong result in some schedule") {
  std::vector<float> in(128), expected(128), out(128);
  for (int i = 0; i < 128; ++i) expected[127 - i] = in[i] = number(i);
  int wrong = 0;
  in_every_schedule([&] {
    launch("reverse", reverse_kernel<true>, 1, 128, 128 * sizeof(float), nullptr, in.data(), out.data());
    CHECK(out == expected);
    launch("reverse", reverse_kernel<false>, 1, 128, 128 * sizeof(float), nullptr, in.data(), out.data());
    wrong += out != expected ? 1 : 0;
  });
  CHECK(wrong >= 1);
}

#endif

__global__ void divergent_barrier_kernel() {
  if (threadIdx.x < 40)
    __syncthreads();
  else
    __syncthreads();
}

__global__ void divergent_collective_kernel(int* out) {
  if (threadIdx.x % 2 == 0)
    *out = __shfl_sync(kAllLanes, 1, 0);
  else
    *out = __shfl_sync(kAllLanes, 1, 0);
}

__global__ void deadlock_kernel() {
  if (threadIdx.x == 3) __syncwarp(0xffu);
  __syncthreads();
}

__global__ void wrong_mask_kernel() {
  __syncwarp(1u);
}

__global__ void misaligned_kernel(const float* in, Pack<float>* out) {
  *out = load_pack(in + 1);
}

__global__ void misaligned_chunk_kernel(const float* in, float* out) {
  float chunk[4] = {};
  if (out == nullptr)
    load(Input{in + 1, DType::fp32, true}, 0, 4, chunk);
  else
    store(Output{out + 1, DType::fp32, true}, 0, 4, chunk);
}

__global__ void partial_mma_kernel() {
  float d[4] = {};
  if (threadIdx.x != 31) mma_16816<bf16>(d, {0, 0, 0, 0}, {0, 0});
}

__global__ void unrounded_mma_kernel() {
  float d[4] = {};
  mma_1688(d, {0, 0, 0, std::bit_cast<std::uint32_t>(1 + 0x1p-11f)}, {0, 0}, d);
}

__global__ void nothing_kernel() {}

TEST_CASE("emulator: broken rules are errors that name kernel, thread and line") {
#if defined(__SANITIZE_THREAD__)
  ISOBAR_SKIP("ThreadSanitizer takes threads that a failed launch abandons for running ones");
#endif
  alignas(16) const float in[8] = {};
  alignas(16) float out[8] = {};
  Pack<float> pack;
  int shuffled = 0;
  in_every_schedule([&] {
    const std::string barrier =
        failure_of([] { launch("divergent", divergent_barrier_kernel, dim3(1, 2), 64, 0, nullptr); });
    CHECK_THAT(barrier, ContainsSubstring("kernel divergent, block (0,") &&
                            ContainsSubstring("divergent barrier at ") && ContainsSubstring("emulator.cc:") &&
                            ContainsSubstring(" while others wait at "));
    CHECK_THAT(failure_of([&] { launch("k", divergent_collective_kernel, 1, 32, 0, nullptr, &shuffled); }),
               ContainsSubstring("divergent collective at "));
    CHECK_THAT(failure_of([] { launch("k", deadlock_kernel, 1, 32, 0, nullptr); }),
               ContainsSubstring("deadlock") && ContainsSubstring("thread (3,0,0) waits at ") &&
                   ContainsSubstring("thread (0,0,0) waits at "));
    CHECK_THAT(failure_of([] { launch("k", wrong_mask_kernel, 1, 2, 0, nullptr); }),
               ContainsSubstring("thread (1,0,0): a lane is not in the mask it passes"));
    CHECK_THAT(failure_of([&] { launch("k", misaligned_kernel, 1, 1, 0, nullptr, in, &pack); }),
               ContainsSubstring("misaligned access at "));
    for (float* const to : {static_cast<float*>(nullptr), out})
      CHECK_THAT(failure_of([&] { launch("k", misaligned_chunk_kernel, 1, 1, 0, nullptr, in, to); }),
                 ContainsSubstring("misaligned access at "));
    CHECK_THAT(failure_of([] { launch("k", partial_mma_kernel, 1, 32, 0, nullptr); }),
               ContainsSubstring("an instruction of 32 lanes"));
    CHECK_THAT(failure_of([] { launch("k", unrounded_mma_kernel, 1, 32, 0, nullptr); }),
               ContainsSubstring("an operand that is not in tf32 at "));
    // And the next launch works.
    CHECK(failure_of([] { launch("k", nothing_kernel, 3, 1024, 0, nullptr); }) == "no failure");
  });
  CHECK_THAT(failure_of([] { launch("k", nothing_kernel, 1, 1025, 0, nullptr); }),
             ContainsSubstring("a block of 1025"));
  CHECK_THAT(failure_of([] { launch("k", nothing_kernel, dim3(1, 65536), 1, 0, nullptr); }),
             ContainsSubstring("a grid of 1 x 65536"));
  CHECK_THAT(failure_of([] { launch("k", nothing_kernel, 1, 1, (99 << 10) + 1, nullptr); }),
             ContainsSubstring("shared memory"));
}

TEST_CASE("emulator: schedules by name") {
  for (const std::string name : {"forward", "reverse", "7", "forward,lockstep", "12,lockstep"})
    CHECK(name_of(parse_schedule(name)) == name);
  for (const std::string name : {"", "backwards", "7,", "-1", ",lockstep", "12345678901"})
    CHECK_THAT(failure_of([&] { parse_schedule(name); }),
               ContainsSubstring("ISOBAR_EMULATOR_ORDER is \"" + name + "\""));
}

}  // namespace
}  // namespace isobar::emulator

#endif
