// dropout and drop_path on the CPU. The random words of a chunk are drawn first, many Philox blocks side by side.
#include "kernels/dropout.h"

#include "kernels/common/math.h"
#include "kernels/common/rng.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

constexpr std::int64_t kChunkBlocks = 64;  // Philox blocks of four words

// The random bits of elements [4·block, 4·(block + kChunkBlocks)).
void draw(std::uint64_t seed, std::uint64_t stream, std::int64_t block, std::uint32_t* bits) {
#pragma omp simd
  for (std::int64_t k = 0; k < kChunkBlocks; ++k) {
    const Philox4 words = philox4x32(seed, stream, static_cast<std::uint64_t>(block + k));
    for (int word = 0; word < 4; ++word) bits[4 * k + word] = words.word[word];
  }
}

}  // namespace

void dropout(const Dropout& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) {
    using Acc = accumulator_t<T>;
    const Acc scale = static_cast<Acc>(1 / (1 - static_cast<double>(a.p)));
    const std::uint32_t threshold = drop_threshold(a.p);
    constexpr std::int64_t kChunk = 4 * kChunkBlocks;
    parallel_for(ceil_div(a.n, kChunk), kGrain / 4 / kChunk, [&](std::int64_t begin, std::int64_t end) {
      alignas(64) std::uint32_t bits[kChunk];
      for (std::int64_t chunk = begin; chunk < end; ++chunk) {
        draw(a.seed, a.stream, chunk * kChunkBlocks, bits);
        const T* x = static_cast<const T*>(a.x) + chunk * kChunk;
        T* y = static_cast<T*>(a.y) + chunk * kChunk;
        const std::int64_t left = a.n - chunk * kChunk, n = left < kChunk ? left : kChunk;
#pragma omp simd
        for (std::int64_t i = 0; i < n; ++i)
          y[i] = bits[i] >= threshold ? convert<T>(convert<Acc>(x[i]) * scale) : T(0);
      }
    });
  });
}

void drop_path(const DropPath& a) {
  if (a.n <= 0) return;
  visit_floating(a.dtype, [&]<class T>(Type<T>) {
    using Acc = accumulator_t<T>;
    const Acc scale = static_cast<Acc>(1 / (1 - static_cast<double>(a.p)));
    const std::uint32_t threshold = drop_threshold(a.p);
    parallel_for_elements(a.batch * a.n, kGrain / 4, [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {  // up to the end of the sample that begin lies in
        const std::int64_t sample = begin / a.n;
        const std::int64_t last = (sample + 1) * a.n < end ? (sample + 1) * a.n : end;
        const T* x = static_cast<const T*>(a.x);
        T* y = static_cast<T*>(a.y);
        if (random_bits(a.seed, a.stream, static_cast<std::uint64_t>(sample)) >= threshold) {
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

ISOBAR_CPU_KERNEL(dropout, Dropout)
ISOBAR_CPU_KERNEL(drop_path, DropPath)
