// dropout on CUDA: eight elements a thread and turn are two blocks of Philox; the mask is never stored.
#include "kernels/dropout.h"

#include "kernels/common/rng.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 8;

struct Mask {
  std::uint64_t seed, stream;
  std::uint32_t threshold;  // what has smaller random bits is dropped
  float keep_scale;         // 1/(1-p)
};

Mask mask(const char* kernel, float p, std::uint64_t seed, std::uint64_t stream) {
  ISOBAR_CHECK(p >= 0 && p < 1, kernel, ": the probability ", p, " is not in [0, 1)");
  return {seed, stream, drop_threshold(p), 1.0f / (1.0f - p)};
}

__global__ void __launch_bounds__(kMapThreads) dropout_kernel(std::int64_t n, Mask mask, Input x, Output y) {
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    float v[kChunk];
    load(x, i, count, v);
    for (int half = 0; half < kChunk / 4; ++half) {
      const Philox4 bits = philox4x32(mask.seed, mask.stream, static_cast<std::uint64_t>(i) / 4 + half);
      for (int k = 0; k < 4; ++k) {
        float& element = v[half * 4 + k];
        element = bits.word[k] >= mask.threshold ? element * mask.keep_scale : 0.0f;
      }
    }
    store(y, i, count, v);
  });
}

__global__ void __launch_bounds__(kMapThreads)
    drop_path_kernel(std::int64_t batch, std::int64_t n, Mask mask, Input x, Output y) {
  for (std::int64_t b = blockIdx.y; b < batch; b += gridDim.y) {
    const bool keep = random_bits(mask.seed, mask.stream, static_cast<std::uint64_t>(b)) >= mask.threshold;
    for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
      float v[kChunk];
      load(x, b * n + i, count, v);
      for (float& element : v) element = keep ? element * mask.keep_scale : 0.0f;
      store(y, b * n + i, count, v);
    });
  }
}

}  // namespace

void dropout(const Dropout& a, Stream stream) {
  require_cuda_dtypes("dropout", a.dtype);
  const Mask drawn = mask("dropout", a.p, a.seed, a.stream);
  if (a.n == 0) return;
  launch("dropout", dropout_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(kMapThreads), 0, stream, a.n, drawn,
         input<kChunk>(a.x, a.dtype), output<kChunk>(a.y, a.dtype));
}

void drop_path(const DropPath& a, Stream stream) {
  require_cuda_dtypes("drop_path", a.dtype);
  const Mask drawn = mask("drop_path", a.p, a.seed, a.stream);
  if (a.batch == 0 || a.n == 0) return;
  launch("drop_path", drop_path_kernel, dim3(map_blocks<kChunk>(a.n), blocks_for(a.batch, 1, grid_limit(1024))),
         dim3(kMapThreads), 0, stream, a.batch, a.n, drawn, input<kChunk>(a.x, a.dtype, a.n),
         output<kChunk>(a.y, a.dtype, a.n));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
