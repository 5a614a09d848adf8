// dropout on CUDA: a thread takes eight elements, two Philox blocks, at a time; the mask is never stored.
#include "kernels/dropout.h"

#include "kernels/common/math.h"
#include "kernels/common/rng.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 8;

struct Mask {
  std::uint64_t seed, first_stream;
  const std::uint64_t* stream_offset;
  std::uint32_t threshold;  // smaller random bits: the element is dropped
  float keep_scale;         // 1/(1-p)

  __device__ std::uint64_t stream() const { return mask_stream(first_stream, stream_offset); }
};

template <class Arguments>
Mask mask(const char* kernel, const Arguments& a) {
  ISOBAR_CHECK(a.p >= 0 && a.p < 1, kernel, ": the probability ", a.p, " is not in [0, 1)");
  return {a.seed, a.stream, a.stream_offset, drop_threshold(a.p), 1.0f / (1.0f - a.p)};
}

__global__ void __launch_bounds__(kMapThreads) dropout_kernel(std::int64_t n, Mask mask, Input x, Output y) {
  const std::uint64_t stream = mask.stream();
  for_each_chunk<kChunk>(n, [&](std::int64_t i, int count) {
    float v[kChunk];
    load(x, i, count, v);
    for (int half = 0; half < kChunk / 4; ++half) {
      const Philox4 bits = philox4x32(mask.seed, stream, static_cast<std::uint64_t>(i) / 4 + half);
      for (int k = 0; k < 4; ++k) {
        float& element = v[half * 4 + k];
        element = bits.word[k] >= mask.threshold ? element * mask.keep_scale : 0.0f;
      }
    }
    store(y, i, count, v);
  });
}

// For a block that is not the whole: a row of the block is a run of elements of the whole, which may begin at any of
// the four words of a Philox block.
__global__ void __launch_bounds__(kMapThreads)
    dropout_window_kernel(std::int64_t rows, ElementWindow window, Mask mask, Input x, Output y) {
  const std::uint64_t stream = mask.stream();
  // The rows fit 32 bits: a shorter division.
  const auto tokens = static_cast<std::uint32_t>(window.rows.tokens);
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const auto at = static_cast<std::uint32_t>(window.rows.before + row);
    const auto begin = static_cast<std::uint64_t>(window.row_begin(at / tokens, at % tokens));
    for_each_chunk<kChunk>(window.cols, [&](std::int64_t i, int count) {
      const std::uint64_t first = begin + static_cast<std::uint64_t>(i);
      const auto skipped = static_cast<unsigned>(first % 4);
      std::uint32_t kept = 0;  // a bit per word of the blocks that overlap the chunk
#pragma unroll
      for (int block = 0; block < kChunk / 4 + 1; ++block) {
        if (block == kChunk / 4 && skipped == 0) break;
        const Philox4 bits = philox4x32(mask.seed, stream, first / 4 + block);
        for (int k = 0; k < 4; ++k) kept |= (bits.word[k] >= mask.threshold ? 1u : 0u) << (4 * block + k);
      }
      kept >>= skipped;
      float v[kChunk];
      load(x, row * window.cols + i, count, v);
      for (int k = 0; k < kChunk; ++k) v[k] = (kept >> k & 1u) != 0 ? v[k] * mask.keep_scale : 0.0f;
      store(y, row * window.cols + i, count, v);
    });
  }
}

// The samples that overlap a range of rows. Only a part of the first and the last may be in the range.
struct SampleRange {
  std::int64_t elements, before;  // of the range, and before it since sample 0 of the block
  std::int64_t per_sample;        // elements
  std::int64_t first;             // sample of the block
  SampleWindow samples;
};

__global__ void __launch_bounds__(kMapThreads) drop_path_kernel(SampleRange range, Mask mask, Input x, Output y) {
  const std::int64_t after = range.before + range.elements;
  const std::uint64_t stream = mask.stream();
  for (std::int64_t b = range.first + blockIdx.y; b * range.per_sample < after; b += gridDim.y) {
    const bool keep = random_bits(mask.seed, stream, static_cast<std::uint64_t>(range.samples.at(b))) >= mask.threshold;
    const std::int64_t sample = b * range.per_sample, next = sample + range.per_sample;
    const std::int64_t begin = (sample > range.before ? sample : range.before) - range.before;
    for_each_chunk<kChunk>((next < after ? next : after) - range.before - begin, [&](std::int64_t i, int count) {
      float v[kChunk];
      load(x, begin + i, count, v);
      for (float& element : v) element = keep ? element * mask.keep_scale : 0.0f;
      store(y, begin + i, count, v);
    });
  }
}

}  // namespace

void dropout(const DropoutArgs& a, Stream stream) {
  require_cuda_dtypes("dropout", a.dtype);
  const Mask drawn = mask("dropout", a);
  const ElementWindow window = checked_window("dropout", a.window, a.n);
  if (a.n == 0) return;
  if (window.cols == 0) {
    launch("dropout", dropout_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(kMapThreads), 0, stream, a.n, drawn,
           input<kChunk>(a.x, a.dtype), output<kChunk>(a.y, a.dtype));
    return;
  }
  const std::int64_t rows = a.n / window.cols;
  ISOBAR_CHECK(window.rows.before + rows <= INT32_MAX && window.rows.tokens <= INT32_MAX,
               "dropout: a block of rows of the whole must end before row 2^31, not at ", window.rows.before + rows);
  const std::int64_t chunks = ceil_div(window.cols, kChunk);
  const int threads = chunks < kMapThreads ? static_cast<int>(round_up(chunks, kWarpSize)) : kMapThreads;
  const dim3 grid(blocks_for(chunks, threads, grid_limit(64)), blocks_for(rows, 1, grid_limit(1 << 14)));
  launch("dropout", dropout_window_kernel, grid, dim3(threads), 0, stream, rows, window, drawn,
         input<kChunk>(a.x, a.dtype, window.cols), output<kChunk>(a.y, a.dtype, window.cols));
}

void drop_path(const DropPathArgs& a, Stream stream) {
  require_cuda_dtypes("drop_path", a.dtype);
  const Mask drawn = mask("drop_path", a);
  const RowWindow window = checked_window("drop_path", a.window);
  if (a.rows == 0 || a.cols == 0) return;
  const SampleRange range{.elements = a.rows * a.cols,
                          .before = window.before * a.cols,
                          .per_sample = window.tokens * a.cols,
                          .first = window.sample_of(0),
                          .samples = window.samples};
  const std::int64_t samples = window.sample_of(a.rows - 1) - range.first + 1;
  // In the range, samples begin at multiples of this, as far as chunks are concerned.
  const std::int64_t row_length = range.before % kChunk == 0 ? range.per_sample : 1;
  launch("drop_path", drop_path_kernel,
         dim3(map_blocks<kChunk>(range.per_sample), blocks_for(samples, 1, grid_limit(1024))), dim3(kMapThreads), 0,
         stream, range, drawn, input<kChunk>(a.x, a.dtype, row_length), output<kChunk>(a.y, a.dtype, row_length));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
