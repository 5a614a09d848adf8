// grad_norm on CUDA. A sum of squares has two stages: a fixed number of blocks write fp64 partial sums, then one block
// adds them.
#include "kernels/grad_norm.h"

#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4;

__global__ void __launch_bounds__(kMapThreads) square_sums_kernel(std::int64_t n, Input x, double* partial) {
  double sum = 0;
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    float v[kChunk];
    load(x, i, count, v);  // zeros past the end
    for (const float element : v) sum += static_cast<double>(element) * element;
  });
  const double total = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kMapThreads)
    total_kernel(int blocks, double factor, const double* partial, double* out) {
  double sum = 0;
  for (int b = threadIdx.x; b < blocks; b += kMapThreads) sum += partial[b];
  const double total = block_sum(sum);
  if (threadIdx.x == 0) *out = factor * total;
}

// One thread: there is one sum per range of a buffer, so there are few.
__global__ void clip_coefficient_kernel(std::int64_t count, const double* sums, double unscale, double max_norm,
                                        double* norm, double* grad_scale) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += sums[i];
  *norm = sqrt(sum);
  const double n = *norm * unscale;
  const double clip = max_norm > 0 ? fmin(1.0, max_norm / (n + 1e-6)) : 1.0;
  *grad_scale = isfinite(n) ? unscale * clip : 0.0;
}

}  // namespace

void sum_of_squares(const SumOfSquaresArgs& a, Stream stream) {
  ISOBAR_CHECK(a.dtype == DType::fp32, "sum_of_squares: gradients in ", name_of(a.dtype),
               " are not supported on CUDA; use fp32, or the CPU");
  const int blocks = a.n == 0 ? 0 : blocks_for(a.n, kMapThreads * kChunk, grid_limit(kSumOfSquaresBlocks));
  if (blocks > 0)
    launch("sum_of_squares", square_sums_kernel, dim3(blocks), dim3(kMapThreads), 0, stream, a.n,
           input<kChunk>(a.x, a.dtype), a.workspace);
  launch("sum_of_squares: partial sums", total_kernel, dim3(1), dim3(kMapThreads), 0, stream, blocks, a.factor,
         static_cast<const double*>(a.workspace), a.sum);
}

void clip_coefficient(const ClipCoefficientArgs& a, Stream stream) {
  launch("clip_coefficient", clip_coefficient_kernel, dim3(1), dim3(1), 0, stream, a.count, a.sums, a.unscale,
         a.max_norm, a.norm, a.grad_scale);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
