// grad_norm on CUDA, in two stages: a fixed number of blocks write fp64 partial sums of squares, one block adds them.
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
    load(x, i, count, v);  // zeros beyond the end
    for (const float element : v) sum += static_cast<double>(element) * element;
  });
  const double total = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kMapThreads) norm_kernel(int blocks, const double* partial, double* norm) {
  double sum = 0;
  for (int b = threadIdx.x; b < blocks; b += kMapThreads) sum += partial[b];
  const double total = block_sum(sum);
  if (threadIdx.x == 0) *norm = sqrt(total);
}

__global__ void clip_coefficient_kernel(const double* norm, double unscale, double max_norm, double* grad_scale) {
  const double n = *norm * unscale;
  const double clip = max_norm > 0 ? fmin(1.0, max_norm / (n + 1e-6)) : 1.0;
  *grad_scale = isfinite(n) ? unscale * clip : 0.0;
}

}  // namespace

void grad_norm(const GradNorm& a, Stream stream) {
  ISOBAR_CHECK(a.dtype == DType::fp32, "grad_norm: gradients in ", name_of(a.dtype),
               " are not supported on CUDA; use fp32, or the CPU");
  const int blocks = a.n == 0 ? 0 : blocks_for(a.n, kMapThreads * kChunk, grid_limit(kGradNormBlocks));
  if (blocks > 0)
    launch("grad_norm", square_sums_kernel, dim3(blocks), dim3(kMapThreads), 0, stream, a.n,
           input<kChunk>(a.x, a.dtype), a.workspace);
  launch("grad_norm: partial sums", norm_kernel, dim3(1), dim3(kMapThreads), 0, stream, blocks,
         static_cast<const double*>(a.workspace), a.norm);
}

void clip_coefficient(const ClipCoefficient& a, Stream stream) {
  launch("clip_coefficient", clip_coefficient_kernel, dim3(1), dim3(1), 0, stream, a.norm, a.unscale, a.max_norm,
         a.grad_scale);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
