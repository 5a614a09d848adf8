// The sums of parts of a convolution's terms become one.
#include "kernels/conv/parts.cuh"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

__global__ void __launch_bounds__(kMapThreads)
    conv_parts_kernel(PartsOfTerms terms, ResultRows rows, ConvResult result) {
  const int size = terms.m * terms.n;  // conv.h keeps it below 2^31
  for (int i = static_cast<int>(global_thread()); i < size; i += static_cast<int>(global_threads())) {
    float sum[1] = {};
    for (int part = 0; part < terms.parts; ++part) sum[0] += terms.sums[std::int64_t{part} * size + i];
    const int row = i / terms.n, column = i % terms.n;
    result.put(rows[terms.first_row + row] * terms.n + column, column, 1, sum);
  }
}

}  // namespace

void add_parts(const PartsOfTerms& terms, const ResultRows& rows, const ConvResult& result, Stream stream) {
  launch("conv: sums of parts", conv_parts_kernel, dim3(map_blocks<1>(std::int64_t{terms.m} * terms.n)),
         dim3(kMapThreads), 0, stream, terms, rows, result);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
