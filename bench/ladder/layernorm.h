// The first ladder: the forward pass of layer norm (kernels/layernorm.h) in fp32, without a residual branch.
// docs/learn/3_a_kernel.md walks through its rungs.
//
//   y = (x - mean) · rstd · weight + bias,   mean and rstd = 1/√(var + eps) of each row, stored
//
// bench/ladder/layernorm_cpu.cc holds the rungs for a CPU, bench/ladder/layernorm.cu those for a GPU (and the
// emulator).
#pragma once

#include <cstdint>

#include "kernels/common/stream.h"

namespace isobar {

struct LayernormRungArgs {
  std::int64_t rows = 0, cols = 0;
  float eps = 1e-6f;
  const float* x = nullptr;       // [rows, cols]
  const float* weight = nullptr;  // [cols]
  const float* bias = nullptr;    // [cols]
  float* y = nullptr;             // [rows, cols]
  float* mean = nullptr;          // [rows]
  float* rstd = nullptr;          // [rows]
};

inline constexpr std::int64_t kLadderMaxCols = 4096;  // the longest row of ladder_block_per_row

namespace cpu {
void ladder_naive(const LayernormRungArgs& a, Stream stream = {});
void ladder_vector(const LayernormRungArgs& a, Stream stream = {});
void ladder_one_pass(const LayernormRungArgs& a, Stream stream = {});
void ladder_blocked(const LayernormRungArgs& a, Stream stream = {});
void ladder_threaded(const LayernormRungArgs& a, Stream stream = {});
}  // namespace cpu

namespace cuda {
void ladder_thread_per_row(const LayernormRungArgs& a, Stream stream = {});
void ladder_warp_per_row(const LayernormRungArgs& a, Stream stream = {});
void ladder_block_per_row(const LayernormRungArgs& a, Stream stream = {});
}  // namespace cuda

namespace emulator {
void ladder_thread_per_row(const LayernormRungArgs& a, Stream stream = {});
void ladder_warp_per_row(const LayernormRungArgs& a, Stream stream = {});
void ladder_block_per_row(const LayernormRungArgs& a, Stream stream = {});
}  // namespace emulator

}  // namespace isobar
