// What the emulator has for compute capability 9.0: tiles by TMA, mbarriers, products of warpgroups, named barriers,
// shares of registers, against plain loops under every schedule; and that it refuses what a GPU would not forgive.
#include "tests/harness/error_of.h"
#include "tests/harness/testing.h"

#if ISOBAR_HAS_EMULATOR

#define ISOBAR_EMULATE
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/wgmma.h"
#include "kernels/emulator/devices.h"
#include "kernels/emulator/schedule.h"

namespace isobar::emulator {
namespace {

using testing::ContainsSubstring;

// A GPU of compute capability 9.0, in every schedule.
void on_hopper(const std::function<void()>& body) {
  const Schedule schedule_before = current_schedule();
  const int capability_before = capability();
  set_capability(kHopper);
  for (const Schedule& schedule : kTestSchedules) {
    set_schedule(schedule);
    INFO("schedule " << name_of(schedule));
    body();
  }
  set_schedule(schedule_before);
  set_capability(capability_before);
}

// The sentence with which a launch fails.
std::string failure_of(const std::function<void()>& run) {
  return testing::error_of(run, "no failure");
}

// Small whole numbers, no two tiles of them alike: sums of their products are exact in fp32.
float number(int i) {
  return static_cast<float>((i * 37 + i / 64 * 5 + i / 4096 * 7 + 11) % 64 - 32);
}

// Row-major, 16-byte aligned.
template <class T>
struct alignas(16) Matrix {
  int rows, columns;
  std::vector<T> value;

  Matrix(int rows_, int columns_, int seed) : rows(rows_), columns(columns_) {
    for (int i = 0; i < rows * columns; ++i) value.push_back(T(number(seed + 3 * i)));
  }
  float at(int row, int column) const {
    return static_cast<float>(value[static_cast<std::size_t>(row * columns + column)]);
  }

  // By tiles of `box_rows` rows and 64 columns.
  TensorMap map(int box_rows) const {
    const auto bytes = static_cast<std::uint64_t>(columns) * sizeof(T);
    return tensor_map_of({.base = value.data(),
                          .size = {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows), 1, 1},
                          .stride = {bytes, bytes * static_cast<std::uint64_t>(rows), 16},
                          .box = {64, static_cast<std::uint32_t>(box_rows), 1, 1}});
  }
};

// ---- Products -------------------------------------------------------------------------------------------------------

enum class Fault {
  none,
  unmade_mbarrier,
  unknown_mbarrier,
  made_twice,
  many_arrivals,
  waits_twice,
  few_bytes,
  many_bytes,
  no_map,
  unaligned_tile,
  large_tile,
  no_fence,
  other_product,
  no_descriptor,
  other_layout,
  reserved_bits,
  outside,
  early_read,
  early_write,
  changed_tile,
  changed_registers,
  no_proxy_fence,
  with_proxy_fence,
  no_wait
};

constexpr int kDepth = 64, kRows = 64;

// d = A·B, or as far as the fault lets it come. A [64, 64] and B by tiles; with kTransposedB B is [64, columns], else
// its transpose.
template <class T, int kTiles, bool kTransposedB, bool kRegisters>
__global__ void multiply_kernel(Fault fault, const TensorMap a_map, const TensorMap b_map, const T* a, float* d) {
  constexpr int kColumns = 8 * kTiles, kParts = kTransposedB ? (kColumns + 63) / 64 : 1;
  constexpr int kTileBytes = kRows * 128, kPartBytes = (kTransposedB ? kDepth : kColumns) * 128;
  ISOBAR_SWIZZLED_SHARED(a_tile);
  unsigned char* b_tile = a_tile + kTileBytes;
  Mbarrier& landed = *reinterpret_cast<Mbarrier*>(b_tile + kParts * kPartBytes);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  if (thread == 0) {
    if (fault != Fault::unmade_mbarrier) landed.init(1);
    if (fault == Fault::made_twice) landed.init(1);
    if (fault != Fault::unknown_mbarrier) mbarrier_init_fence();
  }
  __syncthreads();
  if (thread == 0) {
    const int bytes = kTileBytes + kParts * kPartBytes;
    landed.arrive_and_expect(fault == Fault::few_bytes ? bytes + 16 : fault == Fault::many_bytes ? bytes - 16 : bytes);
    if (fault == Fault::many_arrivals) landed.arrive();
    if (fault == Fault::large_tile) tma_load(b_tile + kParts * kPartBytes, a_map, landed, 0, 0, 0, 0);
    tma_load(fault == Fault::unaligned_tile ? a_tile + 128 : a_tile, fault == Fault::no_map ? TensorMap{} : a_map,
             landed, 0, 0, 0, 0);
    for (int part = 0; part < kParts; ++part) tma_load(b_tile + part * kPartBytes, b_map, landed, 64 * part, 0, 0, 0);
  }
  landed.wait(0);
  if (fault == Fault::waits_twice) landed.wait(0);
  if ((fault == Fault::no_proxy_fence || fault == Fault::with_proxy_fence) && thread == 3) b_tile[17] ^= 1;
  if (fault == Fault::with_proxy_fence) fence_async_proxy();
  __syncthreads();

  float sum[kTiles][4];
  std::uint32_t fragments[kDepth / 16][4];
  for (int step = 0; step < kDepth / 16; ++step)
    for (int i = 0; i < 4; ++i) {
      const T* from = a + (16 * warp + lane / 4 + i % 2 * 8) * kDepth + 16 * step + i / 2 * 8 + lane % 4 * 2;
      fragments[step][i] = static_cast<std::uint32_t>(from[0].bits) | static_cast<std::uint32_t>(from[1].bits) << 16;
    }
  std::uint64_t a_bits = tile_descriptor(a_tile, 16), b_bits = tile_descriptor(b_tile, kPartBytes);
  if (fault == Fault::no_descriptor) b_bits = 0;
  if (fault == Fault::other_layout) b_bits ^= 3ull << 62;
  if (fault == Fault::reserved_bits) b_bits |= 1ull << 55;
  if (fault == Fault::outside) b_bits = advanced(b_bits, kParts * kPartBytes);
  if (fault == Fault::other_product && thread == 77) b_bits = advanced(b_bits, 32);
  if (fault != Fault::no_fence) wgmma_fence();
  for (int step = 0; step < kDepth / 16; ++step) {
    const std::uint64_t b_step = advanced(b_bits, step * (kTransposedB ? 16 * 128 : 32));
    const std::uint64_t a_step = advanced(a_bits, step * 32);
    if (kRegisters && step == 0)
      wgmma<T, false, kTransposedB>(sum, fragments[step], b_step);
    else if (kRegisters)
      wgmma<T, true, kTransposedB>(sum, fragments[step], b_step);
    else if (step == 0)
      wgmma<T, false, kTransposedB>(sum, a_step, b_step);
    else
      wgmma<T, true, kTransposedB>(sum, a_step, b_step);
  }
  wgmma_commit();
  if (fault == Fault::no_wait) return;
  if (fault == Fault::early_read && thread == 5) d[0] = sum[0][0];
  if (fault == Fault::early_write) sum[0][1] = 1;
  if (fault == Fault::changed_registers && thread == 9) fragments[1][2] ^= 1;
  if (fault == Fault::changed_tile) {
    __syncthreads();
    if (thread == 0) b_tile[33] ^= 1;
    __syncthreads();
  }
  wgmma_wait<0>(sum, fragments);
  if (fault == Fault::early_read) return;
  for (int n = 0; n < kTiles; ++n)
    for (int r = 0; r < 4; ++r)
      d[(16 * warp + lane / 4 + r / 2 * 8) * kColumns + 8 * n + lane % 4 * 2 + r % 2] = sum[n][r];
}

template <class T, int kTiles, bool kTransposedB, bool kRegisters>
std::vector<float> multiply(const Matrix<T>& a, const Matrix<T>& b, Fault fault = Fault::none) {
  constexpr int kColumns = 8 * kTiles, kParts = kTransposedB ? (kColumns + 63) / 64 : 1;
  constexpr int kBytes = kRows * 128 + kParts * (kTransposedB ? kDepth : kColumns) * 128;
  std::vector<float> d(kRows * kColumns, -1);
  launch("multiply", multiply_kernel<T, kTiles, kTransposedB, kRegisters>, 1, 128, kBytes + sizeof(Mbarrier), nullptr,
         fault, a.map(kRows), b.map(kTransposedB ? kDepth : kColumns), a.value.data(), d.data());
  return d;
}

template <class T, int kTiles, bool kTransposedB>
void check_products() {
  constexpr int kColumns = 8 * kTiles;
  const Matrix<T> a(kRows, kDepth, 5), b(kTransposedB ? kDepth : kColumns, kTransposedB ? kColumns : kDepth, 8);
  std::vector<float> expected(kRows * kColumns, 0);
  for (int row = 0; row < kRows; ++row)
    for (int column = 0; column < kColumns; ++column)
      for (int k = 0; k < kDepth; ++k)
        expected[static_cast<std::size_t>(row * kColumns + column)] +=
            a.at(row, k) * (kTransposedB ? b.at(k, column) : b.at(column, k));
  INFO(kColumns << " columns" << (kTransposedB ? ", B transposed" : ""));
  CHECK(multiply<T, kTiles, kTransposedB, false>(a, b) == expected);
  CHECK(multiply<T, kTiles, kTransposedB, true>(a, b) == expected);
}

TEMPLATE_TEST_CASE("emulator of 9.0: products of a warpgroup", "", bf16, fp16) {
  on_hopper([] {
    check_products<TestType, 6, false>();
    check_products<TestType, 6, true>();
    check_products<TestType, 8, true>();
    check_products<TestType, 16, false>();
    check_products<TestType, 16, true>();
  });
}

// ---- Tiles ----------------------------------------------------------------------------------------------------------

constexpr int kBoxRows = 16;

__global__ void tile_kernel(const TensorMap map, int column, int row, std::uint16_t* out) {
  ISOBAR_SWIZZLED_SHARED(tile);
  Mbarrier& landed = *reinterpret_cast<Mbarrier*>(tile + kBoxRows * 128);
  landed.init(1);
  mbarrier_init_fence();
  landed.arrive_and_expect(kBoxRows * 128);
  tma_load(tile, map, landed, column, row, 0, 0);
#if defined(__SANITIZE_THREAD__)  // it reports what follows, rightly
  out[0] = 0xffff;
#else
  out[0] = *reinterpret_cast<const std::uint16_t*>(tile);
#endif
  landed.wait(0);
  for (int i = 0; i < kBoxRows * 64; ++i) out[1 + i] = reinterpret_cast<const std::uint16_t*>(tile)[i];
}

TEST_CASE("emulator of 9.0: tiles land swizzled at their wait and not before, zeros outside the tensor") {
  const Matrix<bf16> matrix(21, 40, 2);
  on_hopper([&] {
    for (const auto& [column, row] : std::vector<std::array<int, 2>>{{0, 0}, {8, 11}, {-16, -3}, {48, 30}}) {
      std::vector<std::uint16_t> out(1 + kBoxRows * 64, 1);
      launch("tile", tile_kernel, 1, 1, kBoxRows * 128 + sizeof(Mbarrier), nullptr, matrix.map(kBoxRows), column, row,
             out.data());
      CHECK(std::isnan(static_cast<float>(std::bit_cast<bf16>(out[0]))));
      int wrong = 0;
      for (int r = 0; r < kBoxRows; ++r)
        for (int c = 0; c < 64; ++c) {
          const bool inside = row + r >= 0 && row + r < matrix.rows && column + c >= 0 && column + c < matrix.columns;
          const int place = r * 64 + (c / 8 ^ r % 8) * 8 + c % 8;
          const auto value = static_cast<float>(std::bit_cast<bf16>(out[static_cast<std::size_t>(1 + place)]));
          wrong += value == (inside ? matrix.at(row + r, column + c) : 0) ? 0 : 1;
        }
      INFO("from column " << column << ", row " << row);
      CHECK(wrong == 0);
    }
  });
}

// What is copied in bulk, first before it has landed, then after.
__global__ void bulk_kernel(int place, const std::uint16_t* from, int bytes, std::uint16_t* out) {
  ISOBAR_SWIZZLED_SHARED(shared);
  Mbarrier& landed = *reinterpret_cast<Mbarrier*>(shared);
  const auto* copied = reinterpret_cast<const std::uint16_t*>(shared + place);
  landed.init(1);
  mbarrier_init_fence();
  landed.arrive_and_expect(bytes);
  bulk_load(shared + place, from, bytes, landed);
#if defined(__SANITIZE_THREAD__)  // as above
  out[0] = 0xffff;
#else
  out[0] = copied[0];
#endif
  landed.wait(0);
  for (int i = 0; i < bytes / 2; ++i) out[1 + i] = copied[i];
}

std::vector<std::uint16_t> copied_in_bulk(int place, const Matrix<bf16>& matrix, int first, int bytes) {
  std::vector<std::uint16_t> out(static_cast<std::size_t>(1 + bytes / 2), 1);
  const auto* from = reinterpret_cast<const std::uint16_t*>(matrix.value.data()) + first;
  launch("bulk", bulk_kernel, 1, 1, 256, nullptr, place, from, bytes, out.data());
  return out;
}

TEST_CASE("emulator of 9.0: bytes that are copied in bulk land at their wait and not before") {
  const Matrix<bf16> matrix(4, 64, 2);
  const auto* numbers = reinterpret_cast<const std::uint16_t*>(matrix.value.data());
  on_hopper([&] {
    for (const auto& [place, first, bytes] : std::vector<std::array<int, 3>>{{16, 0, 240}, {48, 72, 16}}) {
      const std::vector<std::uint16_t> out = copied_in_bulk(place, matrix, first, bytes);
      CHECK(std::isnan(static_cast<float>(std::bit_cast<bf16>(out[0]))));
      CHECK(std::equal(out.begin() + 1, out.end(), numbers + first));
    }
  });
}

// ---- A ring ---------------------------------------------------------------------------------------------------------

enum class RingFault { none, early_release, no_release };
constexpr int kSlots = 2, kTurns = 7;

// One thread copies tiles of 64 rows through two slots; a warpgroup multiplies each with the first of them. A third
// warpgroup leaves its registers to that one.
__global__ void ring_kernel(RingFault fault, const TensorMap map, float* d) {
  constexpr int kTileBytes = 64 * 128;
  ISOBAR_SWIZZLED_SHARED(tiles);
  auto* const full = reinterpret_cast<Mbarrier*>(tiles + (1 + kSlots) * kTileBytes);
  Mbarrier* const empty = full + 1 + kSlots;
  if (threadIdx.x == 0) {
    for (int i = 0; i <= kSlots; ++i) full[i].init(1);
    for (int i = 0; i < kSlots; ++i) empty[i].init(4);
    mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < 128 || threadIdx.x >= 256) {
    fewer_registers<24>();
    if (threadIdx.x >= 32 || !elect_one()) return;
    full[kSlots].arrive_and_expect(kTileBytes);
    tma_load(tiles + kSlots * kTileBytes, map, full[kSlots], 0, 0, 0, 0);
    for (int turn = 0; turn < kTurns; ++turn) {
      const int slot = turn % kSlots;
      empty[slot].wait(turn / kSlots % 2 ^ 1);
      full[slot].arrive_and_expect(kTileBytes);
      tma_load(tiles + slot * kTileBytes, map, full[slot], 0, 64 * turn, 0, 0);
    }
    return;
  }
  more_registers<240>();
  float sum[8][4] = {};
  full[kSlots].wait(0);
  for (int turn = 0; turn < kTurns; ++turn) {
    const int slot = turn % kSlots, lane = static_cast<int>(threadIdx.x) % 32;
    full[slot].wait(turn / kSlots % 2);
    wgmma_fence();
    for (int step = 0; step < 4; ++step)
      wgmma<bf16, true, true>(sum, advanced(tile_descriptor(tiles + kSlots * kTileBytes, 16), step * 32),
                              advanced(tile_descriptor(tiles + slot * kTileBytes, 16), step * 16 * 128));
    wgmma_commit();
    if (fault == RingFault::early_release) {
      if (lane == 0) empty[slot].arrive();
      full[slot].wait((turn / kSlots + 1) % 2);  // the next tile is there
    }
    wgmma_wait<0>(sum);
    if (fault == RingFault::none && lane == 0) empty[slot].arrive();
  }
  const int thread = static_cast<int>(threadIdx.x) - 128;
  for (int n = 0; n < 8; ++n)
    for (int r = 0; r < 4; ++r)
      d[(thread / 32 * 16 + thread % 32 / 4 + r / 2 * 8) * 64 + 8 * n + thread % 4 * 2 + r % 2] = sum[n][r];
}

std::vector<float> run_ring(const Matrix<bf16>& matrix, RingFault fault) {
  std::vector<float> d(64 * 64, -1);
  launch("ring", ring_kernel, 1, 384, (1 + kSlots) * (64 * 128) + (1 + 2 * kSlots) * sizeof(Mbarrier), nullptr, fault,
         matrix.map(64), d.data());
  return d;
}

TEST_CASE("emulator of 9.0: a ring of tiles between a thread that copies and a warpgroup that multiplies") {
  const Matrix<bf16> matrix(kTurns * 64 - 3, 64, 1);  // what the last tile lacks is zero
  std::vector<float> expected(64 * 64, 0);
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < 64; ++column)
      for (int k = 0; k < matrix.rows; ++k)
        expected[static_cast<std::size_t>(row * 64 + column)] += matrix.at(row, k % 64) * matrix.at(k, column);
  on_hopper([&] { CHECK(run_ring(matrix, RingFault::none) == expected); });
}

// ---- Named barriers, registers --------------------------------------------------------------------------------------

// Two warps write, two read: each side in turn, by two barriers.
__global__ void turns_kernel(int* value, int* seen) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int turn = 0; turn < 5; ++turn) {
    if (thread < 64) {
      if (turn > 0) bar_sync(2, 128);
      value[thread] = 100 * turn + thread;
      bar_arrive(1, 128);
    } else {
      bar_sync(1, 128);
      seen[turn * 64 + thread - 64] = value[127 - thread];
      if (turn < 4) bar_arrive(2, 128);
    }
  }
}

TEST_CASE("emulator of 9.0: named barriers of which one side does not wait") {
  on_hopper([] {
    std::vector<int> value(64, 0), seen(5 * 64, -1), expected;
    for (int turn = 0; turn < 5; ++turn)
      for (int i = 0; i < 64; ++i) expected.push_back(100 * turn + 63 - i);
    launch("turns", turns_kernel, 1, 128, 0, nullptr, value.data(), seen.data());
    CHECK(seen == expected);
  });
}

enum class ThreadFault {
  other_count,
  comes_twice,
  no_barrier,
  odd_count,
  more_of_fewer,
  part_of_group,
  too_many,
  phases
};

__global__ void thread_fault_kernel(ThreadFault fault) {
  ISOBAR_SWIZZLED_SHARED(shared);
  Mbarrier& mbarrier = *reinterpret_cast<Mbarrier*>(shared);
  const int thread = static_cast<int>(threadIdx.x);
  if (fault == ThreadFault::other_count) bar_sync(1, thread < 64 ? 128 : 256);
  if (fault == ThreadFault::comes_twice && thread == 0) {
    bar_arrive(1, 128);
    bar_arrive(1, 128);
  }
  if (fault == ThreadFault::no_barrier) bar_sync(16, 128);
  if (fault == ThreadFault::odd_count) fewer_registers<100>();
  if (fault == ThreadFault::more_of_fewer) more_registers<24>();
  if (fault == ThreadFault::part_of_group && thread < 32) fewer_registers<40>();
  if (fault == ThreadFault::too_many) more_registers<256>();
  if (fault == ThreadFault::phases) {
    if (thread == 0) {
      mbarrier.init(1);
      mbarrier_init_fence();
    }
    __syncthreads();
    if (thread == 0) mbarrier.arrive();
    mbarrier.wait(0);
    __syncthreads();
    if (thread == 0) {
      mbarrier.arrive();
      mbarrier.arrive();
    }
    __syncthreads();
    mbarrier.wait(1);
  }
}

// ---- What it must refuse --------------------------------------------------------------------------------------------

TEST_CASE("emulator of 9.0: broken rules of copies and products are errors") {
#if defined(__SANITIZE_THREAD__)
  ISOBAR_SKIP("ThreadSanitizer takes threads that a failed launch abandons for running ones");
#endif
  const std::vector<std::pair<Fault, const char*>> sentences = {
      {Fault::unmade_mbarrier, "an mbarrier is used before it is made"},
      {Fault::unknown_mbarrier, "an mbarrier is used before mbarrier_init_fence has made it known"},
      {Fault::made_twice, "an mbarrier is made twice"},
      {Fault::many_arrivals, "more than 1 arrivals in one phase of an mbarrier"},
      {Fault::waits_twice, "a thread waits twice for one phase of an mbarrier"},
      {Fault::few_bytes, "(0 of 1 arrivals and 16 bytes are missing)"},
      {Fault::many_bytes, "16 bytes more land at an mbarrier than it was told to expect"},
      {Fault::no_map, "a tensor map was not encoded"},
      {Fault::unaligned_tile, "a tile that is not 1024-byte aligned"},
      {Fault::large_tile, "a tile of 8192 bytes leaves the block's dynamic shared memory"},
      {Fault::no_fence, "a product without a wgmma_fence"},
      {Fault::other_product, "the threads of a warpgroup issue different products"},
      {Fault::no_descriptor, "a descriptor that names no tile"},
      {Fault::other_layout, "a descriptor whose layout is not the swizzle of 128 bytes: 2"},
      {Fault::reserved_bits, "a descriptor with bits set that must be 0"},
      {Fault::outside, "a product reads outside the block's dynamic shared memory"},
      {Fault::early_write, "accumulators were changed before the product that writes them was waited for"},
      {Fault::changed_tile, "a tile in shared memory was changed before the product that reads it was waited for"},
      {Fault::changed_registers, "registers were changed before the product that reads them was waited for"},
      {Fault::no_proxy_fence, "shared memory that a thread has written, with no fence_async_proxy between"},
      {Fault::no_wait, "a thread ends before it has waited for its products"}};
  const Matrix<bf16> a(kRows, kDepth, 5), b(kDepth, 64, 8);
  on_hopper([&] {
    for (const auto& [fault, sentence] : sentences)
      CHECK_THAT(failure_of([&, which = fault] { multiply<bf16, 8, true, true>(a, b, which); }),
                 ContainsSubstring(sentence));
    CHECK(std::isnan(multiply<bf16, 8, true, true>(a, b, Fault::early_read)[0]));
    CHECK(failure_of([&] { multiply<bf16, 8, true, true>(a, b, Fault::with_proxy_fence); }) == "no failure");
    CHECK(multiply<bf16, 8, true, true>(a, b).size() == 64 * 64);  // and the next launch works
  });
}

TEST_CASE("emulator of 9.0: broken rules of copies in bulk are errors") {
#if defined(__SANITIZE_THREAD__)
  ISOBAR_SKIP("ThreadSanitizer takes threads that a failed launch abandons for running ones");
#endif
  const Matrix<bf16> matrix(4, 64, 2);
  on_hopper([&] {
    const auto bulk = [&](int place, int first, int bytes) {
      return failure_of([&] { copied_in_bulk(place, matrix, first, bytes); });
    };
    CHECK(bulk(16, 8, 32) == "no failure");
    CHECK_THAT(bulk(16, 8, 24), ContainsSubstring("a copy in bulk of 24 bytes, no multiple of 16"));
    CHECK_THAT(bulk(16, 4, 32), ContainsSubstring("a copy in bulk from an address that is not 16-byte aligned"));
    CHECK_THAT(bulk(24, 8, 32), ContainsSubstring("a copy in bulk that is not 16-byte aligned"));
    CHECK_THAT(bulk(16, 0, 256), ContainsSubstring("a copy in bulk of 256 bytes leaves the block's dynamic shared"));
  });
}

TEST_CASE("emulator of 9.0: broken rules of rings, barriers and registers are errors") {
#if defined(__SANITIZE_THREAD__)
  ISOBAR_SKIP("ThreadSanitizer takes threads that a failed launch abandons for running ones");
#endif
  const Matrix<bf16> matrix(kTurns * 64, 64, 1);
  const auto ring = [&](RingFault fault) { return failure_of([&] { run_ring(matrix, fault); }); };
  const auto thread = [](ThreadFault fault) {
    return failure_of([&] { launch("k", thread_fault_kernel, 1, 384, 1024, nullptr, fault); });
  };
  on_hopper([&] {
    CHECK_THAT(ring(RingFault::early_release), ContainsSubstring("a tile in shared memory was changed before"));
    CHECK_THAT(ring(RingFault::no_release), ContainsSubstring("deadlock") &&
                                                ContainsSubstring("for phase 0 of the mbarrier at byte 24600") &&
                                                ContainsSubstring("(4 of 4 arrivals and 0 bytes are missing)"));
    CHECK_THAT(thread(ThreadFault::other_count), ContainsSubstring("barrier 1 is used for "));
    CHECK_THAT(thread(ThreadFault::comes_twice), ContainsSubstring("arrives twice at barrier 1 before it opens"));
    CHECK_THAT(thread(ThreadFault::no_barrier), ContainsSubstring("there is no named barrier 16"));
    CHECK_THAT(thread(ThreadFault::odd_count), ContainsSubstring("setmaxnreg of 100 registers"));
    CHECK_THAT(thread(ThreadFault::more_of_fewer), ContainsSubstring("setmaxnreg to more registers, 24"));
    CHECK_THAT(thread(ThreadFault::part_of_group),
               ContainsSubstring("a part of a warpgroup has changed its registers"));
    CHECK_THAT(thread(ThreadFault::too_many), ContainsSubstring("deadlock"));
    CHECK_THAT(thread(ThreadFault::phases), ContainsSubstring("an mbarrier is two phases further"));
  });
}

TEST_CASE("emulator of 9.0: an older GPU has none of it, and less shared memory") {
#if defined(__SANITIZE_THREAD__)
  ISOBAR_SKIP("ThreadSanitizer takes threads that a failed launch abandons for running ones");
#endif
  const Matrix<bf16> a(kRows, kDepth, 5), b(kDepth, 64, 8);
  const int before = capability();
  set_capability(kAmpere);
  CHECK_THAT(failure_of([&] { multiply<bf16, 8, true, true>(a, b); }),
             ContainsSubstring("an mbarrier needs compute capability 9.0, and this GPU has 8.0"));
  const auto with_shared = [](std::size_t bytes) {
    return failure_of([=] { launch("k", turns_kernel, 0, 128, bytes, nullptr, nullptr, nullptr); }) +
           failure_of([=] { check_limits("k", 1, 128, bytes); });
  };
  CHECK_THAT(with_shared(100 << 10), ContainsSubstring("more than every GPU since Ampere has"));
  set_capability(kHopper);
  CHECK_THAT(with_shared(227 << 10), !ContainsSubstring("shared memory"));
  CHECK_THAT(with_shared((227 << 10) + 1), ContainsSubstring("a GPU of compute capability 9.0 has (232448)"));
  set_capability(before);
}

TEST_CASE("tensor maps of what TMA cannot read are refused") {
  alignas(16) static const std::uint16_t memory[64] = {};
  const TiledTensor right{.base = memory, .size = {8, 2, 2, 1}, .stride = {16, 32, 64}, .box = {64, 1, 2, 1}};
  CHECK(failure_of([&] { tensor_map_of(right); }) == "no failure");
  const auto refused = [&](const std::function<void(TiledTensor&)>& change) {
    TiledTensor wrong = right;
    change(wrong);
    return failure_of([&] { tensor_map_of(wrong); });
  };
  CHECK_THAT(refused([](TiledTensor& t) { t.base = memory + 1; }), ContainsSubstring("not 16-byte aligned"));
  CHECK_THAT(refused([](TiledTensor& t) { t.stride[1] = 40; }), ContainsSubstring("no multiple of 16"));
  CHECK_THAT(refused([](TiledTensor& t) { t.size[2] = 0; }), ContainsSubstring("a size in a tensor map is 0"));
  CHECK_THAT(refused([](TiledTensor& t) { t.box[2] = 257; }), ContainsSubstring("box is 0 or above 256"));
  CHECK_THAT(refused([](TiledTensor& t) { t.box[0] = 72; }), ContainsSubstring("longer than the 128 bytes"));
  CHECK_THAT(refused([](TiledTensor& t) { t.box[0] = 4; }), ContainsSubstring("no multiple of 16 bytes"));
}

}  // namespace
}  // namespace isobar::emulator

#endif
