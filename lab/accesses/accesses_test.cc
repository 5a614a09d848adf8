// The counter of memory accesses: kernels whose requests can be costed by hand, good ones and those with the faults
// that it is there to find.
#include <vector>

#include "kernels/cuda/array.h"
#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/pack.h"
#include "lab/accesses/counter.h"
#include "tests/harness/testing.h"

namespace isobar::emulator {
namespace {

using accesses::Cost;

alignas(256) float memory[8192];

struct Costs {
  Cost global, shared;
};

// Of a launch of one block, by name.
template <class... Parameters, class... Arguments>
Costs costs_of(void (*kernel)(Parameters...), int threads, std::size_t dynamic_shared, Arguments... arguments) {
  const std::span<const std::byte> global = std::as_bytes(std::span(memory));
  const auto counted = accesses::count({&global, 1}, [&] {
    launch("counted", kernel, dim3(1), dim3(static_cast<unsigned>(threads)), dynamic_shared, nullptr, arguments...);
  });
  REQUIRE(counted.size() <= 1);
  if (counted.empty()) return {};
  return {accesses::sum_of(counted.at("counted"), false), accesses::sum_of(counted.at("counted"), true)};
}

void check(const Cost& cost, std::int64_t requests, std::int64_t moved, std::int64_t least) {
  CHECK(cost.requests == requests);
  CHECK(cost.moved == moved);
  CHECK(cost.least == least);
}

__global__ void copy_every(float* to, const float* from, int stride, int offset) {
  to[threadIdx.x] = from[offset + stride * static_cast<int>(threadIdx.x)];
}

TEST_CASE("accesses: a warp's loads of 128 bytes are four sectors, strided or misaligned ones more") {
  check(costs_of(copy_every, 64, 0, memory + 4096, memory, 1, 0).global, 4, 16, 16);
  check(costs_of(copy_every, 32, 0, memory + 4096, memory, 2, 0).global, 2, 8 + 4, 4 + 4);
  check(costs_of(copy_every, 32, 0, memory + 4096, memory, 8, 0).global, 2, 32 + 4, 4 + 4);
  check(costs_of(copy_every, 32, 0, memory + 4096, memory, 1, 2).global, 2, 5 + 4, 4 + 4);
  check(costs_of(copy_every, 32, 0, memory + 4096, memory, 0, 0).global, 2, 1 + 4, 1 + 4);  // all lanes one number
  check(costs_of(copy_every, 20, 0, memory + 4096, memory, 1, 0).global, 2, 6, 6);          // a part of a warp
}

// Lane l has elements N·l to N·l + N - 1 of bf16 or fp32.
template <class T, int N>
__global__ void copy_chunks(T* to, const T* from) {
  const int at = static_cast<int>(threadIdx.x) * N;
  float values[N];
  const Chunk<T, N> chunk = load_chunk<N>(from + at);
  for (int k = 0; k < N; ++k) values[k] = to_float(chunk.value[k]);
  store_chunk<N>(to + at, values);
}

TEST_CASE("accesses: a chunk of up to 16 bytes is one access, a longer one several that lie apart") {
  const auto halves = reinterpret_cast<bf16*>(memory);
  check(costs_of(copy_chunks<bf16, 4>, 32, 0, halves + 4096, halves).global, 2, 16, 16);
  check(costs_of(copy_chunks<bf16, 8>, 32, 0, halves + 4096, halves).global, 2, 32, 32);
  check(costs_of(copy_chunks<float, 4>, 32, 0, memory + 4096, memory).global, 2, 32, 32);
  check(costs_of(copy_chunks<float, 8>, 32, 0, memory + 4096, memory).global, 4, 128, 64);
}

__global__ void copy_loop(float* to, const float* from, int turns) {
  float sum = 0;
  for (int i = 0; i < turns + static_cast<int>(threadIdx.x) / 16; ++i) sum += from[i * 32 + threadIdx.x];
  to[threadIdx.x] = sum;
}

TEST_CASE("accesses: each turn of a loop is a request, of the lanes that are in it") {
  // Three turns of a whole warp, and a fourth of its upper half.
  check(costs_of(copy_loop, 32, 0, memory + 4096, memory, 3).global, 5, 3 * 4 + 2 + 4, 3 * 4 + 2 + 4);
}

template <int kPitch>
__global__ void transpose(float* to) {
  __shared__ float tile[32 * kPitch];
  const int lane = static_cast<int>(threadIdx.x);
  for (int row = 0; row < 32; ++row) tile[row * kPitch + lane] = static_cast<float>(row);
  __syncwarp();
  for (int row = 0; row < 32; ++row) to[row * 32 + lane] = tile[lane * kPitch + row];
}

TEST_CASE("accesses: a column of a tile without padding has all lanes in one bank") {
  check(costs_of(transpose<33>, 32, 0, memory).shared, 64, 64, 64);
  check(costs_of(transpose<32>, 32, 0, memory).shared, 64, 32 + 32 * 32, 64);
  check(costs_of(transpose<34>, 32, 0, memory).shared, 64, 32 + 32 * 2, 64);
}

__global__ void read_shared_chunks(float* to, int stride, bool from_one) {
  ISOBAR_DYNAMIC_SHARED(float, tile);
  const int lane = static_cast<int>(threadIdx.x);
  const Chunk<float, 4> chunk = load_chunk<4>(tile + (from_one ? 0 : lane * stride));
  to[lane] = chunk.value[0] + chunk.value[1] + chunk.value[2] + chunk.value[3];
}

TEST_CASE("accesses: eight lanes of 16 bytes go together") {
  check(costs_of(read_shared_chunks, 32, 32 * 32 * 4, memory, 4, false).shared, 1, 4, 4);
  check(costs_of(read_shared_chunks, 32, 32 * 32 * 4, memory, 8, false).shared, 1, 8, 4);
  check(costs_of(read_shared_chunks, 32, 32 * 32 * 4, memory, 32, false).shared, 1, 32, 4);
  check(costs_of(read_shared_chunks, 32, 32 * 32 * 4, memory, 0, true).shared, 1, 4, 4);
  // If hardware served all lanes at once: 512 different bytes are four wavefronts, one chunk for all of them is one.
  CHECK(costs_of(read_shared_chunks, 32, 32 * 32 * 4, memory, 4, false).shared.merged == 4);
  CHECK(costs_of(read_shared_chunks, 32, 32 * 32 * 4, memory, 0, true).shared.merged == 1);
}

__global__ void read_pairs(float* to, int stride) {
  ISOBAR_DYNAMIC_SHARED(float, tile);
  const int lane = static_cast<int>(threadIdx.x);
  const TwoFloats two = load_two(tile + lane * stride);
  to[lane] = two.first + two.second;
}

TEST_CASE("accesses: sixteen lanes of 8 bytes go together") {
  check(costs_of(read_pairs, 32, 32 * 4 * 4, memory, 2).shared, 1, 2, 2);
  check(costs_of(read_pairs, 32, 32 * 4 * 4, memory, 4).shared, 1, 4, 2);
}

// A tile of 16 rows of 64 numbers, copied as it lies and read by ldmatrix.
__global__ void load_tile_rows(float* to, const bf16* from, int pitch) {
  ISOBAR_DYNAMIC_SHARED(bf16, tile);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 16 * 8; i += 32) cp_async_16(tile + i / 8 * pitch + i % 8 * 8, from + i * 8);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();
  std::uint32_t words[4];
  ldmatrix_x4(words, tile + lane % 16 * pitch + lane / 16 * 8);
  to[lane] = static_cast<float>(words[0] ^ words[1] ^ words[2] ^ words[3]);
}

TEST_CASE("accesses: ldmatrix of a tile with padding has no conflicts, of one without eight rows in the same banks") {
  const auto halves = reinterpret_cast<const bf16*>(memory);
  const Costs padded = costs_of(load_tile_rows, 32, 16 * 72 * 2, memory + 4096, halves, 72);
  check(padded.global, 5, 4 * 16 + 4, 4 * 16 + 4);
  check(padded.shared, 5, 4 * 4 + 4, 20);  // four copies, a row of eight lanes each, and four matrices
  const Costs plain = costs_of(load_tile_rows, 32, 16 * 64 * 2, memory + 4096, halves, 64);
  check(plain.shared, 5, 4 * 4 + 4 * 8, 20);
}

__global__ void skip_copies(const float* from) {
  ISOBAR_DYNAMIC_SHARED(float, tile);
  cp_async_16(tile + threadIdx.x * 4, from + threadIdx.x * 4, threadIdx.x < 8);
  cp_async_commit();
  cp_async_wait<0>();
}

TEST_CASE("accesses: a copy that is not valid writes zeros and reads nothing") {
  const Costs costs = costs_of(skip_copies, 32, 32 * 16, memory);
  check(costs.global, 1, 4, 4);
  check(costs.shared, 1, 4, 4);
}

__global__ void add_neighbours(float* to) {
  __shared__ float of_block[64];
  of_block[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  to[threadIdx.x] = of_block[threadIdx.x] + __shfl_xor_sync(kAllLanes, of_block[threadIdx.x ^ 32], 1);
}

TEST_CASE("accesses: what the emulator keeps for shuffles and barriers is no memory") {
  const Costs costs = costs_of(add_neighbours, 64, 0, memory);
  check(costs.global, 2, 8, 8);
  check(costs.shared, 6, 6, 6);
}

TEST_CASE("accesses: memory that nobody has named is an error") {
  std::vector<float> other(32);
  CHECK_THROWS_WITH(costs_of(copy_every, 32, 0, other.data(), memory, 1, 0),
                    testing::ContainsSubstring("touches memory that nobody has named"));
  check(costs_of(copy_every, 32, 0, memory + 4096, memory, 1, 0).global, 2, 8, 8);  // and the next count is right
}

TEST_CASE("accesses: launches outside a count are not counted") {
  launch("uncounted", copy_every, dim3(1), dim3(32), 0, nullptr, memory + 4096, memory, 1, 0);
  check(costs_of(copy_every, 32, 0, memory + 4096, memory, 1, 0).global, 2, 8, 8);
}

}  // namespace
}  // namespace isobar::emulator
