// The sums of parts of a convolution's terms become one.
#include "kernels/conv/parts.cuh"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

__global__ void __launch_bounds__(kMapThreads)
    conv_parts_kernel(PartsOfTerms terms, ResultRows rows, ConvResult result) {
  const std::int64_t size = std::int64_t{terms.m} * terms.n;
  for (std::int64_t i = global_thread(); i < size; i += global_threads()) {
    float sum[1] = {};
    for (int part = 0; part < terms.parts; ++part) sum[0] += terms.sums[part * size + i];
    const int row = static_cast<int>(i / terms.n), column = static_cast<int>(i % terms.n);
    result.put(rows[terms.first_row + row] * terms.n + column, column, 1, sum);
  }
}

}  // namespace

void add_parts(const PartsOfTerms& terms, const ResultRows& rows, const ConvResult& result, Stream stream) {
  launch("conv: sums of parts", conv_parts_kernel, dim3(map_blocks<1>(std::int64_t{terms.m} * terms.n)),
         dim3(kMapThreads), 0, stream, terms, rows, result);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
