// pointwise on CUDA: one chunk of eight elements a thread and turn, computed in fp32.
#include "kernels/pointwise.h"

#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pointwise.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 8;

__global__ void __launch_bounds__(kMapThreads) pointwise_fwd_kernel(std::int64_t n, Pointwise kind, Input x, Output y) {
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    float v[kChunk];
    load(x, i, count, v);
    for (float& element : v) element = pointwise(kind, element);
    store(y, i, count, v);
  });
}

__global__ void __launch_bounds__(kMapThreads)
    pointwise_bwd_kernel(std::int64_t n, Pointwise kind, Input dy, Input y, Output dx) {
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    float v[kChunk], d[kChunk];
    load(y, i, count, v);
    load(dy, i, count, d);
    for (int k = 0; k < kChunk; ++k) d[k] *= pointwise_slope(kind, v[k]);
    store(dx, i, count, d);
  });
}

}  // namespace

void pointwise_fwd(const PointwiseFwdArgs& a, Stream stream) {
  require_cuda_dtypes("pointwise_fwd", a.dtype);
  if (a.n == 0) return;
  launch("pointwise_fwd", pointwise_fwd_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(kMapThreads), 0, stream, a.n,
         a.kind, input<kChunk>(a.x, a.dtype), output<kChunk>(a.y, a.dtype));
}

void pointwise_bwd(const PointwiseBwdArgs& a, Stream stream) {
  require_cuda_dtypes("pointwise_bwd", a.dtype);
  if (a.n == 0) return;
  launch("pointwise_bwd", pointwise_bwd_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(kMapThreads), 0, stream, a.n,
         a.kind, input<kChunk>(a.dy, a.dtype), input<kChunk>(a.y, a.dtype), output<kChunk>(a.dx, a.dtype));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
