#include "kernels/conv/engine_kernels.h"

#include "kernels/common/rng.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pointwise.h"
#include "kernels/cuda/reduce.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4, kEpilogueChunk = 8;

__global__ void __launch_bounds__(kMapThreads)
    conv_epilogue_kernel(std::int64_t n, Divisor channels, const float* bias, Pointwise activation, Output y) {
  for_each_chunk<kEpilogueChunk>(n, [&](std::int64_t i, int count) {
    float v[kEpilogueChunk];
    load({y.data, y.dtype, y.packed}, i, count, v);
    int channel = channels.divide(static_cast<int>(i)).remainder;
    for (float& element : v) {
      if (bias != nullptr) element += bias[channel];
      element = pointwise(activation, element);
      channel = channel + 1 == channels.divisor() ? 0 : channel + 1;
    }
    store(y, i, count, v);
  });
}

__global__ void __launch_bounds__(kMapThreads) draw_evenly_kernel(std::int64_t n, std::uint64_t seed, Output x) {
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    const Philox4 bits = philox4x32(seed, 0, static_cast<std::uint64_t>(i) / kChunk);
    float v[kChunk];
    for (int k = 0; k < kChunk; ++k) v[k] = 2 * to_uniform(bits.word[k]) - 1;
    store(x, i, count, v);
  });
}

__global__ void __launch_bounds__(kMapThreads)
    squared_distance_kernel(std::int64_t n, Input a, Input b, double* partial) {
  double apart = 0, size = 0;
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    float v[kChunk], w[kChunk];
    load(a, i, count, v);  // zeros past the end
    load(b, i, count, w);
    for (int k = 0; k < kChunk; ++k) {
      const double difference = static_cast<double>(v[k]) - w[k];
      apart += difference * difference;
      size += static_cast<double>(w[k]) * w[k];
    }
  });
  const double apart_of_block = block_sum(apart), size_of_block = block_sum(size);
  if (threadIdx.x != 0) return;
  partial[2 * blockIdx.x] = apart_of_block;
  partial[2 * blockIdx.x + 1] = size_of_block;
}

// One block, whose thread t adds number t of every pair.
__global__ void squared_distance_total_kernel(int blocks, const double* partial, double* sums) {
  double sum = 0;
  for (int b = 0; b < blocks; ++b) sum += partial[2 * b + threadIdx.x];
  sums[threadIdx.x] = sum;
}

}  // namespace

void conv_epilogue(const ConvEpilogueArgs& a, Stream stream) {
  launch("conv_epilogue", conv_epilogue_kernel, dim3(map_blocks<kEpilogueChunk>(a.n)), dim3(kMapThreads), 0, stream,
         a.n, Divisor(a.channels), a.bias, a.activation, output<kEpilogueChunk>(a.y, a.dtype));
}

void draw_evenly(const DrawEvenlyArgs& a, Stream stream) {
  launch("draw_evenly", draw_evenly_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(kMapThreads), 0, stream, a.n, a.seed,
         output<kChunk>(a.x, a.dtype));
}

void squared_distance(const SquaredDistanceArgs& a, Stream stream) {
  const int blocks = blocks_for(a.n, kMapThreads * kChunk, grid_limit(kSquaredDistanceBlocks));
  launch("squared_distance", squared_distance_kernel, dim3(blocks), dim3(kMapThreads), 0, stream, a.n,
         input<kChunk>(a.a, a.dtype), input<kChunk>(a.b, a.dtype), a.workspace);
  launch("squared_distance: total", squared_distance_total_kernel, dim3(1), dim3(2), 0, stream, blocks,
         static_cast<const double*>(a.workspace), a.sums);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
