// The ladder of a convolution on a CPU. Like kernels/*_cpu.cc this file is compiled once for each instruction set
// (kernels/cpu/isa.h).
#include "bench/ladder/conv.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"
#include "kernels/gemm/packed.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

// What tap (k, l) of the window of point (b, i, j) reads, `in` channels; null outside the picture.
ISOBAR_INLINE const float* channels_at(const ConvRungArgs& a, std::int64_t b, std::int64_t i, std::int64_t j,
                                       std::int64_t k, std::int64_t l) {
  const std::int64_t row = i + k - 1, column = j + l - 1;
  if (row < 0 || row >= a.side || column < 0 || column >= a.side) return nullptr;
  return a.x + ((b * a.side + row) * a.side + column) * a.in;
}

}  // namespace

// ---- 1. naive -------------------------------------------------------------------------------------------------------

// The definition: seven loops, four over the numbers of y and three over the terms of each. Channels come last, so that
// the innermost loop runs along memory in x and in the weight. But `sum` waits for itself, as in the other ladders: one
// multiply-add every four cycles, where a core can begin two vectors of them in each.
void conv_naive(const ConvRungArgs& a) {
  for (std::int64_t b = 0; b < a.batch; ++b)
    for (std::int64_t i = 0; i < a.side; ++i)
      for (std::int64_t j = 0; j < a.side; ++j)
        for (std::int64_t co = 0; co < a.out; ++co) {
          float sum = 0;
          for (std::int64_t k = 0; k < 3; ++k)
            for (std::int64_t l = 0; l < 3; ++l) {
              const float* const x = channels_at(a, b, i, j, k, l);
              if (x == nullptr) continue;
              const float* const weight = a.weight + ((co * 3 + k) * 3 + l) * a.in;
              for (std::int64_t ci = 0; ci < a.in; ++ci) sum += weight[ci] * x[ci];
            }
          a.y[((b * a.side + i) * a.side + j) * a.out + co] = sum;
        }
}

// ---- 2. tiled -------------------------------------------------------------------------------------------------------

namespace {

// A tile of y stays in registers while the terms run: 4 neighbouring points (2 where there are 16 registers) by 4
// output channels, each a vector whose lanes take every 16th input channel. A step loads 4 vectors of x and 4 of the
// weight for 16 multiply-adds, and no sum waits for itself. At the end the lanes of each vector are added.
constexpr std::int64_t kPoints = kTileRows / 2, kChannels = 4;

// Points [j, j + kPoints) of a row of a picture, channels [co, co + kChannels); what there is of both. `zeros` stands
// for the channels of a point outside.
ISOBAR_INLINE void make_tile(const ConvRungArgs& a, const float* zeros, std::int64_t b, std::int64_t i, std::int64_t j,
                             std::int64_t co) {
  constexpr std::int64_t kWidth = kLanes<float>;
  const std::int64_t points = min(kPoints, a.side - j), channels = min(kChannels, a.out - co);
  const std::int64_t whole = a.in / kWidth * kWidth;
  Vector<float> sums[kPoints][kChannels] = {};
  float rest[kPoints][kChannels] = {};  // of the channels that fill no vector
  for (std::int64_t k = 0; k < 3; ++k)
    for (std::int64_t l = 0; l < 3; ++l) {
      const float *x[kPoints], *weight[kChannels];
      for (std::int64_t p = 0; p < kPoints; ++p) {
        const float* const from = p < points ? channels_at(a, b, i, j + p, k, l) : nullptr;
        x[p] = from != nullptr ? from : zeros;
      }
      for (std::int64_t q = 0; q < kChannels; ++q)
        weight[q] = q < channels ? a.weight + (((co + q) * 3 + k) * 3 + l) * a.in : zeros;
      for (std::int64_t ci = 0; ci < whole; ci += kWidth) {
        Vector<float> w[kChannels];
#pragma GCC unroll 4
        for (int q = 0; q < kChannels; ++q) w[q] = load(weight[q] + ci);
#pragma GCC unroll 4
        for (int p = 0; p < kPoints; ++p) {
          const Vector<float> v = load(x[p] + ci);
#pragma GCC unroll 4
          for (int q = 0; q < kChannels; ++q) sums[p][q] += w[q] * v;
        }
      }
      for (std::int64_t ci = whole; ci < a.in; ++ci)
        for (std::int64_t p = 0; p < kPoints; ++p)
          for (std::int64_t q = 0; q < kChannels; ++q) rest[p][q] += weight[q][ci] * x[p][ci];
    }
  for (std::int64_t p = 0; p < points; ++p)
    for (std::int64_t q = 0; q < channels; ++q) {
      float sum = rest[p][q];
      for (int lane = 0; lane < kWidth; ++lane) sum += sums[p][q][lane];
      a.y[((b * a.side + i) * a.side + j + p) * a.out + co + q] = sum;
    }
}

// Rows [first, last) of all pictures.
void make_rows(const ConvRungArgs& a, std::int64_t first, std::int64_t last) {
  auto* const zeros = static_cast<float*>(scratch(Scratch::conv_taps, sizeof(float) * a.in));
  for (std::int64_t ci = 0; ci < a.in; ++ci) zeros[ci] = 0;
  for (std::int64_t row = first; row < last; ++row)
    for (std::int64_t j = 0; j < a.side; j += kPoints)
      for (std::int64_t co = 0; co < a.out; co += kChannels) make_tile(a, zeros, row / a.side, row % a.side, j, co);
}

}  // namespace

void conv_tiled(const ConvRungArgs& a) {
  make_rows(a, 0, a.batch * a.side);
}

// ---- 3. threaded ----------------------------------------------------------------------------------------------------

// Each thread has a range of rows. A number of y is made by one thread, in the same order, whatever their number is.
void conv_threaded(const ConvRungArgs& a) {
  parallel_for(a.batch * a.side, 1, [&](std::int64_t first, std::int64_t last) { make_rows(a, first, last); });
}

// ---- 4. im2col ------------------------------------------------------------------------------------------------------

namespace {

// The matrix of points [first, last): a row is what the window of a point reads, [3, 3, in].
void write_windows(const ConvRungArgs& a, std::int64_t first, std::int64_t last, float* to) {
  for (std::int64_t point = first; point < last; ++point) {
    const std::int64_t i = point / a.side % a.side, j = point % a.side;
    for (std::int64_t k = 0; k < 3; ++k)
      for (std::int64_t l = 0; l < 3; ++l, to += a.in) {
        const float* const from = channels_at(a, point / (a.side * a.side), i, j, k, l);
        for (std::int64_t ci = 0; ci < a.in; ++ci) to[ci] = from != nullptr ? from[ci] : 0;
      }
  }
}

// y of points [first, last) is their matrix times the weight, which is [out, 9 · in] as it lies.
void multiply(const ConvRungArgs& a, const float* windows, std::int64_t first, std::int64_t last) {
  gemm_packed(GemmArgs{.m = last - first,
                       .n = a.out,
                       .k = a.terms(),
                       .transpose_b = true,
                       .a = windows,
                       .b = a.weight,
                       .c = a.y + first * a.out},
              Stream{});
}

}  // namespace

// The textbook: write the matrix, then call a good product, here the one that kernels/conv/ has as well. The product
// loads each number of the weight for a whole panel of points, and all its sums are vectors of output channels: nothing
// is added across lanes. The price is a matrix of nine times the size of x, which goes to memory and comes back.
void conv_im2col(const ConvRungArgs& a) {
  const std::int64_t size = a.points() * a.terms();
  auto* const windows = static_cast<float*>(scratch(Scratch::conv_taps, sizeof(float) * size));
  parallel_for(a.points(), kGrain / a.terms() + 1, [&](std::int64_t first, std::int64_t last) {
    write_windows(a, first, last, windows + first * a.terms());
  });
  multiply(a, windows, 0, a.points());
}

// ---- 5. gathered ----------------------------------------------------------------------------------------------------

// The same product on kBlock points at a time: their part of the matrix is written and used while it is in the
// second-level cache, and the next block overwrites it. Memory sees x and y only. The real kernel goes one step
// further: the product packs its operands anyway, and there packing gathers. Here each number is still copied twice.
void conv_gathered(const ConvRungArgs& a) {
  constexpr std::int64_t kBlock = 256;
  parallel_for(ceil_div(a.points(), kBlock), 1, [&](std::int64_t begin, std::int64_t end) {
    auto* const windows = static_cast<float*>(scratch(Scratch::conv_taps, sizeof(float) * kBlock * a.terms()));
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kBlock, last = min(first + kBlock, a.points());
      write_windows(a, first, last, windows);
      multiply(a, windows, first, last);
    }
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(conv_naive, ConvRungArgs)
ISOBAR_CPU_KERNEL(conv_tiled, ConvRungArgs)
ISOBAR_CPU_KERNEL(conv_threaded, ConvRungArgs)
ISOBAR_CPU_KERNEL(conv_im2col, ConvRungArgs)
ISOBAR_CPU_KERNEL(conv_gathered, ConvRungArgs)
