// replace on CUDA: a thread takes a chunk of eight elements of many groups, whose flags it reads once.
#include "kernels/replace.h"

#include <algorithm>

#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 8;

// with_stride: elements from a group's values to the next group's. `with` may be null.
__global__ void __launch_bounds__(kMapThreads)
    replace_kernel(std::int64_t groups, std::int64_t n, Input x, Input with, std::int64_t with_stride,
                   const std::int32_t* flags, Output y) {
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    bool is_replaced[kChunk];
    for (int k = 0; k < kChunk; ++k) is_replaced[k] = k < count && flags[i + k] != 0;
    for (std::int64_t group = blockIdx.y; group < groups; group += gridDim.y) {
      float v[kChunk], w[kChunk] = {};
      load(x, group * n + i, count, v);
      if (with.data != nullptr) load(with, group * with_stride + i, count, w);
      for (int k = 0; k < kChunk; ++k) v[k] = is_replaced[k] ? w[k] : v[k];
      store(y, group * n + i, count, v);
    }
  });
}

}  // namespace

void replace(const ReplaceArgs& a, Stream stream) {
  require_cuda_dtypes("replace", a.dtype);
  if (a.groups == 0 || a.n == 0) return;
  const int point_blocks = map_blocks<kChunk>(a.n);
  const int group_blocks = blocks_for(a.groups, 1, std::max(1, grid_limit(1024) / point_blocks));
  launch("replace", replace_kernel, dim3(point_blocks, group_blocks), dim3(kMapThreads), 0, stream, a.groups, a.n,
         input<kChunk>(a.x, a.dtype, a.n), input<kChunk>(a.with, a.dtype, a.n), a.with_row ? std::int64_t{0} : a.n,
         a.flags, output<kChunk>(a.y, a.dtype, a.n));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
