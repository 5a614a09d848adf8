#include "bench/peaks.h"

#include <immintrin.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/common/run.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/gemm/gemm.h"
#include "kernels/grad_norm.h"

namespace isobar::bench {
namespace {

constexpr std::int64_t kFmaRounds = 1 << 20;
constexpr int kChains = 12;  // independent accumulators: two FMA units of latency four need eight

// Each returns the flops it did on one thread; the result goes to `sink` so that nothing is optimised away.
__attribute__((target("avx512f"))) double fma_avx512(float& sink) {
  __m512 chain[kChains];
  for (__m512& c : chain) c = _mm512_set1_ps(1.0f);
  const __m512 factor = _mm512_set1_ps(0.999999f), term = _mm512_set1_ps(1e-6f);
  for (std::int64_t round = 0; round < kFmaRounds; ++round) {
#pragma GCC unroll 12
    for (__m512& c : chain) c = _mm512_fmadd_ps(c, factor, term);
  }
  for (const __m512& c : chain) sink += _mm512_cvtss_f32(c);
  return 2.0 * 16 * kChains * kFmaRounds;
}

__attribute__((target("avx2,fma"))) double fma_avx2(float& sink) {
  __m256 chain[kChains];
  for (__m256& c : chain) c = _mm256_set1_ps(1.0f);
  const __m256 factor = _mm256_set1_ps(0.999999f), term = _mm256_set1_ps(1e-6f);
  for (std::int64_t round = 0; round < kFmaRounds; ++round) {
#pragma GCC unroll 12
    for (__m256& c : chain) c = _mm256_fmadd_ps(c, factor, term);
  }
  for (const __m256& c : chain) sink += _mm256_cvtss_f32(c);
  return 2.0 * 8 * kChains * kFmaRounds;
}

double fma_generic(float& sink) {
  __m128 chain[kChains];
  for (__m128& c : chain) c = _mm_set1_ps(1.0f);
  const __m128 factor = _mm_set1_ps(0.999999f), term = _mm_set1_ps(1e-6f);
  for (std::int64_t round = 0; round < kFmaRounds; ++round) {
#pragma GCC unroll 12
    for (__m128& c : chain) c = _mm_add_ps(_mm_mul_ps(c, factor), term);
  }
  for (const __m128& c : chain) sink += _mm_cvtss_f32(c);
  return 2.0 * 4 * kChains * kFmaRounds;
}

// Products of pairs of bf16, added to fp32: AVX512_BF16.
__attribute__((target("avx512f,avx512bf16"))) double products_bf16(float& sink) {
  __m512 chain[kChains];
  for (__m512& c : chain) c = _mm512_set1_ps(1.0f);
  const __m512bh pairs = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(-0.5f));
  for (std::int64_t round = 0; round < kFmaRounds; ++round) {
#pragma GCC unroll 12
    for (__m512& c : chain) c = _mm512_dpbf16_ps(c, pairs, pairs);
  }
  for (const __m512& c : chain) sink += _mm512_cvtss_f32(c);
  return 2.0 * 32 * kChains * kFmaRounds;
}

double products_amx(float& sink) {
  constexpr std::int64_t kRounds = 1 << 14;
  alignas(64) float rows[cpu::kTile * cpu::kTile];
  cpu::AmxTiles tiles;
  tiles.clear<0>(), tiles.clear<1>(), tiles.clear<2>(), tiles.clear<3>();
  tiles.clear<4>(), tiles.clear<5>(), tiles.clear<6>(), tiles.clear<7>();
  for (std::int64_t round = 0; round < kRounds; ++round) {
    tiles.multiply<0, 4, 6>();
    tiles.multiply<1, 4, 7>();
    tiles.multiply<2, 5, 6>();
    tiles.multiply<3, 5, 7>();
  }
  tiles.store<3>(rows, cpu::kTileBytes);
  sink += rows[0];
  return 2.0 * cpu::kTile * cpu::kTile * cpu::kTileDepth * 4 * kRounds;
}

// `flops_of` returns the flops it did on one thread.
double cpu_rate(double (*flops_of)(float& sink), Stopwatch& stopwatch) {
  const int threads = omp_get_max_threads();
  std::vector<double> flops(static_cast<std::size_t>(threads));
  std::vector<float> sinks(static_cast<std::size_t>(threads));
  const double seconds = stopwatch
                             .time([&] {
                               parallel_for(threads, 1, [&](std::int64_t begin, std::int64_t end) {
                                 for (std::int64_t thread = begin; thread < end; ++thread) {
                                   const auto t = static_cast<std::size_t>(thread);
                                   flops[t] = flops_of(sinks[t]);
                                 }
                               });
                             })
                             .min;
  double total = 0;
  for (const double f : flops) total += f;
  return total / seconds;
}

// A copy of this many bytes leaves nothing else in the last cache: 64 MiB, or more where that cache is larger.
std::size_t bytes_to_flush_cpu() {
  constexpr long kLeast = 1 << 26, kMost = 1 << 28;
  return static_cast<std::size_t>(std::clamp(sysconf(_SC_LEVEL3_CACHE_SIZE), kLeast, kMost));
}

double gemm_rate(Device device, Arithmetic dtype, std::int64_t side, Stopwatch& stopwatch) {
  Memory memory(device);
  const GemmArgs gemm = {.m = side,
                         .n = side,
                         .k = side,
                         .in_dtype = dtype,
                         .out_dtype = dtype,
                         .a = memory.uniform(side * side, dtype),
                         .b = memory.uniform(side * side, dtype),
                         .c = memory.allocate(static_cast<std::size_t>(side * side) * size_of(dtype)),
                         .tf32 = dtype.tf32};
  return gemm_cost(gemm).flops / stopwatch.time([&] { ISOBAR_RUN(device, gemm, gemm); }).min;
}

}  // namespace

Stopwatch::Stopwatch(Device device, double budget, bool brief)
    : device_(device),
      budget_(budget),
      memory_(device),
      bytes_(device.kind == DeviceKind::cuda ? std::size_t{1} << (brief ? 16 : 28) : bytes_to_flush_cpu()),
      from_(memory_.uniform(static_cast<std::int64_t>(bytes_ / 4), DType::fp32)),
      to_(memory_.uniform(static_cast<std::int64_t>(bytes_ / 4), DType::fp32)),
      sums_(static_cast<double*>(memory_.allocate((1 + kSumOfSquaresBlocks) * sizeof(double)))) {}

void Stopwatch::flush_caches() {
  if (device_.kind == DeviceKind::cpu) return copy();
  const SumOfSquaresArgs read{
      .n = static_cast<std::int64_t>(bytes_ / 4), .x = from_, .sum = sums_, .workspace = sums_ + 1};
  ISOBAR_RUN(device_, sum_of_squares, read);
}

void Stopwatch::copy() {
  copy_on_device(device_, to_, from_, bytes_);
}

Timing Stopwatch::time(const std::function<void()>& call) {
  constexpr std::size_t kLeast = 3, kMost = 50;
  seconds_of(device_, call);
  std::vector<double> times;
  for (double spent = 0; times.size() < kLeast || (spent < budget_ && times.size() < kMost); spent += times.back())
    times.push_back(time_once(call));
  return timing_of(std::move(times));
}

double Stopwatch::time_once(const std::function<void()>& call) {
  flush_caches();
  return seconds_of(device_, call);
}

double Stopwatch::copy_bandwidth() {
  return 2.0 * static_cast<double>(bytes_) / time([&] { copy(); }).min;
}

Peaks measure_peaks(Device device, Arithmetic dtype, Stopwatch& stopwatch, bool brief) {
  const double bandwidth = stopwatch.copy_bandwidth();
  if (device.kind == DeviceKind::cuda)
    return {bandwidth, gemm_rate(device, dtype, brief ? 64 : 4096, stopwatch), "GEMM"};
  const cpu::Bf16Products products = cpu::bf16_products();
  if (dtype == DType::bf16 && products == cpu::Bf16Products::tiles)
    return {bandwidth, cpu_rate(products_amx, stopwatch), "AMX bf16"};
  if (dtype == DType::bf16 && products == cpu::Bf16Products::pairs)
    return {bandwidth, cpu_rate(products_bf16, stopwatch), "AVX512_BF16"};
  const auto fma = cpu::best_isa() == cpu::Isa::avx512 ? fma_avx512
                   : cpu::best_isa() == cpu::Isa::avx2 ? fma_avx2
                                                       : fma_generic;
  return {bandwidth, cpu_rate(fma, stopwatch), "fp32 FMA"};
}

}  // namespace isobar::bench
