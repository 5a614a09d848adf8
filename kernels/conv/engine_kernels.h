// What a library's convolution needs beside it on a GPU: the epilogue, and operands and a measure to judge it by.
#pragma once

#include <cstdint>

#include "kernels/common/activation.h"
#include "kernels/common/dtype.h"
#include "kernels/common/stream.h"

namespace isobar {

// y [rows, channels] = act(y + bias), in place; n = rows·channels < 2^31; bias [channels] fp32 or null. In fp32; y was
// rounded before, and is once more.
struct ConvEpilogueArgs {
  std::int64_t n = 0, channels = 0;
  DType dtype = DType::fp32;
  const float* bias = nullptr;
  Pointwise activation = Pointwise::none;
  void* y = nullptr;
};

// x [n] = numbers drawn evenly from [-1, 1), by (seed, element).
struct DrawEvenlyArgs {
  std::int64_t n = 0;
  DType dtype = DType::fp32;
  std::uint64_t seed = 0;
  void* x = nullptr;
};

// sums [2] = Σ (a - b)², Σ b², in fp64; NaN where a number is. One partial sum a block, added in their order.
struct SquaredDistanceArgs {
  std::int64_t n = 0;
  DType dtype = DType::fp32;
  const void* a = nullptr;
  const void* b = nullptr;
  double* sums = nullptr;
  double* workspace = nullptr;  // kSquaredDistanceWorkspace doubles
};
inline constexpr int kSquaredDistanceBlocks = 512, kSquaredDistanceWorkspace = 2 * kSquaredDistanceBlocks;

namespace cuda {
void conv_epilogue(const ConvEpilogueArgs& a, Stream stream);
void draw_evenly(const DrawEvenlyArgs& a, Stream stream);
void squared_distance(const SquaredDistanceArgs& a, Stream stream);
}  // namespace cuda
namespace emulator {
void conv_epilogue(const ConvEpilogueArgs& a, Stream stream);
void draw_evenly(const DrawEvenlyArgs& a, Stream stream);
void squared_distance(const SquaredDistanceArgs& a, Stream stream);
}  // namespace emulator

}  // namespace isobar
