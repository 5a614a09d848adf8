// dropout and drop_path on the CPU. The random words of a chunk are drawn first, from many Philox blocks at once.
#include "kernels/dropout.h"

#include "kernels/common/math.h"
#include "kernels/common/rng.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

constexpr std::int64_t kChunkBlocks = 64, kChunk = 4 * kChunkBlocks;  // Philox blocks of four words, and their words

// The random bits of elements [4·block, 4·(block + blocks)).
void draw(std::uint64_t seed, std::uint64_t stream, std::int64_t block, std::int64_t blocks, std::uint32_t* bits) {
#pragma omp simd
  for (std::int64_t k = 0; k < blocks; ++k) {
    const Philox4 words = philox4x32(seed, stream, static_cast<std::uint64_t>(block + k));
    for (int word = 0; word < 4; ++word) bits[4 * k + word] = words.word[word];
  }
}

// Elements that are contiguous in the block and in the whole.
struct Run {
  std::int64_t first, count;  // first: the index of the first one in the whole
};
// The run from element i of the block on, up to `end`.
Run run_from(const ElementWindow& window, std::int64_t i, std::int64_t end) {
  if (window.cols == 0) return {i, end - i};
  const std::int64_t row = i / window.cols, col = i % window.cols, left = window.cols - col;
  return {window.row_begin(window.rows.sample_of(row), window.rows.token_of(row)) + col,
          left < end - i ? left : end - i};
}

}  // namespace

void dropout(const DropoutArgs& a) {
  const ElementWindow window = checked_window("dropout", a.window, a.n);
  visit_floating(a.dtype, [&]<class T>(Type<T>) {
    using Acc = accumulator_t<T>;
    const Acc scale = static_cast<Acc>(1 / (1 - static_cast<double>(a.p)));
    const std::uint32_t threshold = drop_threshold(a.p);
    const std::uint64_t stream = mask_stream(a.stream, a.stream_offset);
    parallel_for(ceil_div(a.n, kChunk), kGrain / 4 / kChunk, [&](std::int64_t begin, std::int64_t end) {
      alignas(64) std::uint32_t bits[kChunk + 4];
      const std::int64_t last = end * kChunk < a.n ? end * kChunk : a.n;
      for (std::int64_t first = begin * kChunk; first < last;) {
        const Run run = run_from(window, first, first + kChunk < last ? first + kChunk : last);
        const std::int64_t skipped = run.first % 4;
        draw(a.seed, stream, run.first / 4, ceil_div(skipped + run.count, 4), bits);
        const std::uint32_t* word = bits + skipped;
        const T* x = static_cast<const T*>(a.x) + first;
        T* y = static_cast<T*>(a.y) + first;
#pragma omp simd
        for (std::int64_t i = 0; i < run.count; ++i)
          y[i] = word[i] >= threshold ? convert<T>(convert<Acc>(x[i]) * scale) : T(0);
        first += run.count;
      }
    });
  });
}

void drop_path(const DropPathArgs& a) {
  const RowWindow window = checked_window("drop_path", a.window);
  if (a.rows <= 0 || a.cols <= 0) return;
  visit_floating(a.dtype, [&]<class T>(Type<T>) {
    using Acc = accumulator_t<T>;
    const Acc scale = static_cast<Acc>(1 / (1 - static_cast<double>(a.p)));
    const std::uint32_t threshold = drop_threshold(a.p);
    const std::uint64_t stream = mask_stream(a.stream, a.stream_offset);
    parallel_for_elements(a.rows * a.cols, kGrain / 4, [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {  // up to the end of begin's sample
        const std::int64_t sample = window.sample_of(begin / a.cols);
        const std::int64_t next = ((sample + 1) * window.tokens - window.before) * a.cols;
        const std::int64_t last = next < end ? next : end;
        const T* x = static_cast<const T*>(a.x);
        T* y = static_cast<T*>(a.y);
        if (random_bits(a.seed, stream, static_cast<std::uint64_t>(window.samples.at(sample))) >= threshold) {
#pragma omp simd
          for (std::int64_t i = begin; i < last; ++i) y[i] = convert<T>(convert<Acc>(x[i]) * scale);
        } else {
          for (std::int64_t i = begin; i < last; ++i) y[i] = T(0);
        }
        begin = last;
      }
    });
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(dropout, DropoutArgs)
ISOBAR_CPU_KERNEL(drop_path, DropPathArgs)
