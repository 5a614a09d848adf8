// isobar-constants: what the predictions of lab/kernel_report assume of a GPU of compute capability 9.0, measured.
// The rate and latency of wgmma, exponentials beside products, a round trip over mbarriers, what a block costs that
// does next to nothing, and which of several warps that can go on a scheduler prefers. A line of JSON for each:
//
//   {"constant": "wgmma 64x48, A in shared memory", "value": 29.1, "unit": "cycles"}
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/cuda/exp2.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mbarrier.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/wgmma.h"

namespace isobar::cuda {
namespace {

constexpr int kRounds = 256, kSteps = 4;  // products of a group: 64 channels

void check(cudaError_t status) {
  ISOBAR_CHECK(status == cudaSuccess, "isobar-constants: ", cudaGetErrorString(status));
}

// Numbers that a kernel leaves, and that the host reads when it has ended.
class Answer {
 public:
  explicit Answer(std::size_t count) : count_(count) { check(cudaMalloc(&data_, count * sizeof(float))); }
  ~Answer() { cudaFree(data_); }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  float* data() const { return data_; }
  std::vector<float> read() const {
    std::vector<float> values(count_);
    check(cudaMemcpy(values.data(), data_, count_ * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t count_;
  float* data_ = nullptr;
};

void print(const std::string& constant, double value, const char* unit) {
  std::printf("{\"constant\": \"%s\", \"value\": %.4g, \"unit\": \"%s\"}\n", constant.c_str(), value, unit);
  std::fflush(stdout);
}

// ---- wgmma ----------------------------------------------------------------------------------------------------------

constexpr int kTileBytes = 128 * 128;  // the largest B; A is half of it

__device__ __forceinline__ void clear_tiles(unsigned char* shared) {
  for (int i = static_cast<int>(threadIdx.x); i < 2 * kTileBytes / 4; i += static_cast<int>(blockDim.x))
    reinterpret_cast<int*>(shared)[i] = 0;
  fence_async_proxy();
  __syncthreads();
}

template <int kColumns, bool kFromRegisters>
struct Products {
  float sum[kColumns / 8][4] = {};
  std::uint32_t weights[4] = {};

  // Starts `steps` products, each of which adds to what the one before it has written.
  __device__ __forceinline__ void start(const unsigned char* shared, int steps) {
    // With A in registers, B is transposed: a tile of 64 rows for every 64 columns.
    const std::uint64_t a = tile_descriptor(shared, kTileBytes);
    const std::uint64_t b = tile_descriptor(shared + kTileBytes, kFromRegisters ? kTileBytes / 2 : kTileBytes);
    settle(sum);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step >= steps) break;
      if constexpr (kFromRegisters)
        wgmma<bf16, true, true>(sum, weights, b);
      else
        wgmma<bf16, true, false>(sum, advanced(a, 32 * step), advanced(b, 32 * step));
    }
    wgmma_commit();
    wgmma_wait<0>(sum);
  }
  __device__ __forceinline__ float total() const {
    float all = 0;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
      for (int r = 0; r < 4; ++r) all += sum[n][r];
    return all;
  }
};

// Cycles of a group of kGroup products that are waited for, one group after the other.
template <int kColumns, bool kFromRegisters, int kGroup>
__global__ void __launch_bounds__(kWarpgroupSize) products_kernel(float* answer) {
  ISOBAR_SWIZZLED_SHARED(shared);
  clear_tiles(shared);
  Products<kColumns, kFromRegisters> products;
  products.start(shared, kGroup);
  const long long begin = clock64();
  for (int round = 0; round < kRounds; ++round) products.start(shared, kGroup);
  const long long end = clock64();
  const float total = products.total();  // zeros: keeps the products
  if (threadIdx.x == 0) answer[0] = static_cast<float>(end - begin) / kRounds + total;
}

template <int kColumns, bool kFromRegisters, int kGroup>
double cycles_of_group() {
  const Answer answer(1);
  launch("products", products_kernel<kColumns, kFromRegisters, kGroup>, dim3(1), dim3(kWarpgroupSize),
         2 * kTileBytes + 1024, Stream{}, answer.data());
  return answer.read()[0];
}

// A group of one and one of four: the difference is three products, and what is left of one is its latency.
template <int kColumns, bool kFromRegisters>
void measure_products() {
  const double one = cycles_of_group<kColumns, kFromRegisters, 1>();
  const double four = cycles_of_group<kColumns, kFromRegisters, kSteps>();
  const double rate = (four - one) / (kSteps - 1);
  const std::string what =
      "wgmma 64x" + std::to_string(kColumns) + (kFromRegisters ? ", A in registers" : ", A in shared memory");
  print(what, rate, "cycles");
  print(what + ", from the last to its registers", one - rate, "cycles");
}

// ---- Exponentials beside products -----------------------------------------------------------------------------------

enum Work { kProducts = 1, kExponentials = 2 };

// Two warpgroups: one multiplies, one computes exponentials. Cycles of a round of each.
__global__ void __launch_bounds__(2 * kWarpgroupSize) beside_kernel(int work, float* answer) {
  ISOBAR_SWIZZLED_SHARED(shared);
  clear_tiles(shared);
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpgroupSize, 0);
  float kept = 0;
  const long long begin = clock64();
  if (group == 0 && (work & kProducts) != 0) {
    Products<128, false> products;
    for (int round = 0; round < kRounds; ++round) products.start(shared, kSteps);
    kept = products.total();
  } else if (group == 1 && (work & kExponentials) != 0) {
    constexpr int kChains = 16;
    float x[kChains];
#pragma unroll
    for (int i = 0; i < kChains; ++i) x[i] = -1.0f / (1 + i);
    for (int round = 0; round < kRounds; ++round)
#pragma unroll
      for (int i = 0; i < kChains; ++i) x[i] = exp2_approx(x[i] - 1);
#pragma unroll
    for (int i = 0; i < kChains; ++i) kept += x[i];
  }
  const long long end = clock64();
  if (threadIdx.x % kWarpgroupSize == 0) answer[group] = static_cast<float>(end - begin) / kRounds;
  if (kept == -1.0f) answer[2] = kept;  // never: keeps the work
}

std::vector<float> cycles_beside(int work) {
  const Answer answer(3);
  launch("beside", beside_kernel, dim3(1), dim3(2 * kWarpgroupSize), 2 * kTileBytes + 1024, Stream{}, work,
         answer.data());
  return answer.read();
}

void measure_beside() {
  const double products = cycles_beside(kProducts)[0], exponentials = cycles_beside(kExponentials)[1];
  const std::vector<float> both = cycles_beside(kProducts | kExponentials);
  print("products beside exponentials, of their time alone", both[0] / products, "times");
  print("exponentials beside products, of their time alone", both[1] / exponentials, "times");
  print("an exponential of a warp", exponentials / 16, "cycles");
}

// ---- Barriers, blocks, the scheduler --------------------------------------------------------------------------------

// Two warps wait for each other in turn.
__global__ void __launch_bounds__(64) round_trip_kernel(float* answer) {
  ISOBAR_SWIZZLED_SHARED(shared);
  auto* barriers = reinterpret_cast<Mbarrier*>(shared);
  if (threadIdx.x == 0) {
    barriers[0].init(1);
    barriers[1].init(1);
    mbarrier_init_fence();
  }
  __syncthreads();
  const bool is_first = threadIdx.x < 32;
  const long long begin = clock64();
  for (int round = 0; round < kRounds; ++round) {
    if (!is_first) barriers[0].wait(round % 2);
    if (threadIdx.x % 32 == 0) barriers[is_first ? 0 : 1].arrive();
    if (is_first) barriers[1].wait(round % 2);
  }
  const long long end = clock64();
  if (threadIdx.x == 0) answer[0] = static_cast<float>(end - begin) / kRounds;
}

void measure_round_trip() {
  const Answer answer(1);
  launch("round_trip", round_trip_kernel, dim3(1), dim3(64), 1024 + 2 * sizeof(Mbarrier), Stream{}, answer.data());
  print("a round trip over two mbarriers", answer.read()[0], "cycles");
}

// As attention's blocks begin: barriers, registers of a whole SM, one product, and nothing more.
__global__ void __launch_bounds__(512, 1) block_kernel(float* answer) {
  ISOBAR_SWIZZLED_SHARED(shared);
  auto* barrier = reinterpret_cast<Mbarrier*>(shared + 2 * kTileBytes);
  if (threadIdx.x == 0) {
    barrier->init(1);
    mbarrier_init_fence();
  }
  __syncthreads();
  Products<48, false> products;
  products.start(shared, 1);
  if (products.total() == -1.0f) answer[0] = 0;
}

double microseconds_of_rounds(int rounds, int sms) {
  constexpr int kBytes = 200 << 10;  // one block an SM
  const Answer answer(1);
  gpu::Timer timer;
  double least = 1e9;
  for (int run = 0; run < 5; ++run) {
    timer.start(Stream{});
    launch("block", block_kernel, dim3(static_cast<unsigned>(rounds * sms)), dim3(512), kBytes, Stream{},
           answer.data());
    least = std::min(least, 1e3 * static_cast<double>(timer.stop(Stream{})));
  }
  return least;
}

void measure_block(int sms) {
  constexpr int kFew = 2, kMany = 42;
  print("a block that does one product",
        (microseconds_of_rounds(kMany, sms) - microseconds_of_rounds(kFew, sms)) / (kMany - kFew), "us");
}

// Four warps of one scheduler issue the same independent instructions: when each has done with them.
__global__ void __launch_bounds__(512) scheduler_kernel(float* answer) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  __syncthreads();
  const long long begin = clock64();
  if (warp % 4 == 0) {
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round)
#pragma unroll
      for (int i = 0; i < 64; ++i) x[i % 8] = fmaf(x[i % 8], 0.5f, 1.0f);
    const long long end = clock64();
    float kept = 0;
    for (const float one : x) kept += one;
    if (threadIdx.x % 32 == 0) answer[warp / 4] = static_cast<float>(end - begin);
    if (kept == -1.0f) answer[warp / 4] = kept;
  }
}

void measure_scheduler() {
  const Answer answer(4);
  launch("scheduler", scheduler_kernel, dim3(1), dim3(512), 0, Stream{}, answer.data());
  const std::vector<float> ends = answer.read();
  const auto [first, last] = std::minmax_element(ends.begin(), ends.end());
  print("four warps of a scheduler: how much of its time the last works alone or with others after the first",
        (*last - *first) / *last, "of 1");
  print("four warps of a scheduler: the first to end (0: the oldest)", static_cast<double>(first - ends.begin()), "");
}

void measure() {
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0));
  ISOBAR_CHECK(device.major == 9 && device.minor == 0, "isobar-constants: ", device.name, " has compute capability ",
               device.major, '.', device.minor, "; these are constants of 9.0");
  measure_products<48, false>();
  measure_products<64, false>();
  measure_products<128, false>();
  measure_products<48, true>();
  measure_products<64, true>();
  measure_products<128, true>();
  measure_beside();
  measure_round_trip();
  measure_block(device.multiProcessorCount);
  measure_scheduler();
}

}  // namespace
}  // namespace isobar::cuda

int main() {
  try {
    isobar::cuda::measure();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
