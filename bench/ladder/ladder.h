// One kernel from naive to fast, rung by rung: the forward pass of layer norm (kernels/layernorm.h) in fp32, without a
// residual branch. Every rung computes the same function; each changes one thing. docs/learn/3_a_kernel.md walks
// through them.
//
//   y = (x - mean) · rstd · weight + bias,   mean and rstd = 1/√(var + eps) of each row, stored
//
// bench/ladder/cpu.cc holds the rungs for a CPU, bench/ladder/cuda.cu those for a GPU (and for the emulator).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/common/device.h"

namespace isobar {

struct LadderArgs {
  std::int64_t rows = 0, cols = 0;
  float eps = 1e-6f;
  const float* x = nullptr;       // [rows, cols]
  const float* weight = nullptr;  // [cols]
  const float* bias = nullptr;    // [cols]
  float* y = nullptr;             // [rows, cols]
  float* mean = nullptr;          // [rows]
  float* rstd = nullptr;          // [rows]
};

namespace cpu {
void ladder_naive(const LadderArgs& a, Stream stream = {});
void ladder_vector(const LadderArgs& a, Stream stream = {});
void ladder_one_pass(const LadderArgs& a, Stream stream = {});
void ladder_blocked(const LadderArgs& a, Stream stream = {});
void ladder_threaded(const LadderArgs& a, Stream stream = {});
}  // namespace cpu

namespace cuda {
void ladder_thread_per_row(const LadderArgs& a, Stream stream = {});
void ladder_warp_per_row(const LadderArgs& a, Stream stream = {});
void ladder_block_per_row(const LadderArgs& a, Stream stream = {});
}  // namespace cuda

namespace emulator {
void ladder_thread_per_row(const LadderArgs& a, Stream stream = {});
void ladder_warp_per_row(const LadderArgs& a, Stream stream = {});
void ladder_block_per_row(const LadderArgs& a, Stream stream = {});
}  // namespace emulator

inline constexpr std::int64_t kLadderBlockCols = 4096;  // the longest row of ladder_block_per_row

// How a rung computes the variance. two_pass: the mean first, then the mean of (x - mean)². textbook: the mean of x²
// minus the square of the mean, which cancels where the mean is large beside the deviation.
enum class Variance : std::uint8_t { two_pass, textbook };

struct Rung {
  const char* name;
  DeviceKind device;
  void (*run)(const LadderArgs&, Stream);
  Variance variance = Variance::two_pass;
};

// In the order of the ladder; those for the emulator and for CUDA only where this build has them.
std::vector<Rung> ladder_rungs();

// How far the outputs of `a` are from the exact ones, which are computed in fp64. All pointers are to host memory.
struct LadderError {
  double y = 0;         // the greatest |y - exact y|
  double of_bound = 0;  // the greatest error of y, mean or rstd as a part of its bound; infinite where one is NaN
};

// The bounds, with u = 2^-24 (half a last place), g = (2·√cols + 8)·u for sums of cols rounded terms, and
// k = max|x|·rstd, how often the deviation fits into the largest element of the row:
//
//   mean   g · max|x|
//   rstd   rstd · d          with d = g + (g·k)²  for two passes,  g + g·k²  for the textbook's formula
//   y      |weight| · (rstd · g·max|x| + |h|·d) + g·|bias|,          h = (x - mean)·rstd
LadderError ladder_error(const LadderArgs& a, Variance variance);

}  // namespace isobar
