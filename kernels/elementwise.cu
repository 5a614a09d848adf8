// elementwise on CUDA: a thread takes a chunk of eight elements at a time; types are run-time values (cuda/array.h).
#include "kernels/elementwise.h"

#include <algorithm>

#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 8;

__global__ void __launch_bounds__(kMapThreads) cast_kernel(std::int64_t n, Input x, Output y) {
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    float v[kChunk];
    load(x, i, count, v);
    store(y, i, count, v);
  });
}

__global__ void __launch_bounds__(kMapThreads) fill_kernel(std::int64_t n, float value, Output y) {
  float v[kChunk];
  for (float& element : v) element = value;
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) { store(y, i, count, v); });
}

__global__ void __launch_bounds__(kMapThreads) add_kernel(std::int64_t n, Input a, Input b, Output y) {
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    float u[kChunk], v[kChunk];
    load(a, i, count, u);
    load(b, i, count, v);
    for (int k = 0; k < kChunk; ++k) u[k] += v[k];
    store(y, i, count, u);
  });
}

// The grid's y is over groups, so that a thread reads its chunk of the row once for many groups.
__global__ void __launch_bounds__(kMapThreads)
    add_row_kernel(std::int64_t groups, std::int64_t n, Input x, Input row, Output y) {
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    float added[kChunk];
    load(row, i, count, added);
    for (std::int64_t group = blockIdx.y; group < groups; group += gridDim.y) {
      float v[kChunk];
      load(x, group * n + i, count, v);
      for (int k = 0; k < kChunk; ++k) v[k] += added[k];
      store(y, group * n + i, count, v);
    }
  });
}

}  // namespace

void cast(const CastArgs& a, Stream stream) {
  require_cuda_dtypes("cast", a.x_dtype, a.y_dtype);
  if (a.n == 0) return;
  launch("cast", cast_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(kMapThreads), 0, stream, a.n,
         input<kChunk>(a.x, a.x_dtype), output<kChunk>(a.y, a.y_dtype));
}

void fill(const FillArgs& a, Stream stream) {
  require_cuda_dtypes("fill", a.dtype);
  if (a.n == 0) return;
  launch("fill", fill_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(kMapThreads), 0, stream, a.n,
         static_cast<float>(a.value), output<kChunk>(a.y, a.dtype));
}

void add(const AddArgs& a, Stream stream) {
  require_cuda_dtypes("add", a.a_dtype, a.b_dtype, a.y_dtype);
  if (a.n == 0) return;
  launch("add", add_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(kMapThreads), 0, stream, a.n,
         input<kChunk>(a.a, a.a_dtype), input<kChunk>(a.b, a.b_dtype), output<kChunk>(a.y, a.y_dtype));
}

void add_row(const AddRowArgs& a, Stream stream) {
  require_cuda_dtypes("add_row", a.x_dtype, a.row_dtype, a.y_dtype);
  if (a.groups == 0 || a.n == 0) return;
  const int row_blocks = map_blocks<kChunk>(a.n);
  const int group_blocks = blocks_for(a.groups, 1, std::max(1, grid_limit(1024) / row_blocks));
  launch("add_row", add_row_kernel, dim3(row_blocks, group_blocks), dim3(kMapThreads), 0, stream, a.groups, a.n,
         input<kChunk>(a.x, a.x_dtype, a.n), input<kChunk>(a.row, a.row_dtype), output<kChunk>(a.y, a.y_dtype, a.n));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
