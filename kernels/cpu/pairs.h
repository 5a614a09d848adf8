// Products of bf16 in pairs of neighbouring terms: AVX512_BF16's vdpbf16ps, an emulation of it in plain vectors that
// runs on any machine with AVX-512, and the layout of the operands.
//
// vdpbf16ps (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2) adds the two products of a pair to
// an fp32 lane, the odd one first, each by an FMA that rounds to nearest, ties to even. Numbers below 2^-126 count as
// zero and become zero, signs kept, whatever MXCSR says.
#pragma once

#include "kernels/cpu/simd.h"

#if defined(ISOBAR_ISA_IS_avx512)

namespace isobar::cpu::ISOBAR_ISA {

// The bits of fp32 lanes, or a pair of bf16 in each: the one with the even index in the lower half.
typedef std::uint32_t LaneBits __attribute__((vector_size(kVectorBytes)));
// Two neighbouring bf16.
typedef std::uint32_t Pair __attribute__((may_alias));

// As assembly, so that no compiler flags are needed. Use it only if cpu::bf16_products() is Bf16Products::pairs.
struct Pairs {
  static constexpr int kDepth = 2;  // the depth of a product is a multiple of it

  static ISOBAR_INLINE void add(Vector<float>& c, LaneBits a, LaneBits b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  }
};

struct EmulatedPairs {
  static constexpr int kDepth = Pairs::kDepth;

  static ISOBAR_INLINE void add(Vector<float>& c, LaneBits a, LaneBits b) {
    c = add_product(add_product(c, a & 0xffff0000u, b & 0xffff0000u), a << 16, b << 16);
  }

 private:
  static ISOBAR_INLINE Vector<float> add_product(Vector<float> c, LaneBits a, LaneBits b) {
    return (Vector<float>)flushed(
        (LaneBits)((Vector<float>)flushed(a) * (Vector<float>)flushed(b) + (Vector<float>)flushed((LaneBits)c)));
  }
  static ISOBAR_INLINE LaneBits flushed(LaneBits x) {
    const auto is_normal = (LaneBits)((x & 0x7f800000u) != 0);
    return x & (is_normal | 0x80000000u);
  }
};

// tile += Σ_k A(i, k) · B(k, :), with A(i, k) = a[i·row_step + k·step]. The lanes of B(k, :) = b + k·b_step are pairs.
// The steps are in pairs. The sum of both products of a pair goes to a lane.
template <class Products, int kRows, int kVectors>
ISOBAR_INLINE void multiply_pairs(Tile<float, kRows, kVectors>& tile, const Pair* __restrict__ a, std::int64_t row_step,
                                  std::int64_t step, const Pair* __restrict__ b, std::int64_t b_step,
                                  std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k, a += step, b += b_step) {
    LaneBits row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) __builtin_memcpy(&row[v], b + v * kLanes<float>, sizeof row[v]);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const LaneBits factor = a[i * row_step] - LaneBits{};
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) Products::add(tile.c[i][v], factor, row[v]);
    }
  }
  // Does nothing, but here the sums are in registers. Without it GCC 12 copies them in every turn, to registers or
  // memory.
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) asm("" : "+v"(tile.c[i][v]));
}

// C [rows, cols] fp32 = A [rows, depth] bf16 · B [depth, cols] bf16, or added to C. rows and cols are multiples of 16;
// depth is a multiple of Products::kDepth.
struct Bf16Product {
  const bf16* a;
  std::int64_t a_step;  // elements between rows
  const bf16* b;        // [depth / 2, cols, 2]: rows 2r and 2r + 1 interleaved
  std::int64_t b_step;  // elements between those pairs of rows
  float* c;
  std::int64_t c_step;
  std::int64_t rows, cols, depth;
  bool adds = false;
};

// kAdds is the same as p.adds.
template <class Products, int kVectors, bool kAdds>
void multiply_columns(const Bf16Product& p, std::int64_t col) {
  const auto* b = reinterpret_cast<const Pair*>(p.b) + col;
  for (std::int64_t row = 0; row < p.rows; row += kTileRows) {
    Tile<float, kTileRows, kVectors> tile;
    float* c = p.c + row * p.c_step + col;
    const auto* a = reinterpret_cast<const Pair*>(p.a + row * p.a_step);
    if constexpr (kAdds)
      tile.load_from(c, p.c_step);
    else
      tile.clear();
    multiply_pairs<Products>(tile, a, p.a_step / 2, 1, b, p.b_step / 2, p.depth / 2);
    tile.store_to(c, p.c_step);
  }
}

// For pairs what kernels/cpu/amx.h has for tiles. All lanes of a row of C are in registers: few loads.
template <class Products, bool kAdds>
void multiply_in_pairs(const Bf16Product& p) {
  std::int64_t col = 0;
  for (; p.cols - col >= 3 * kLanes<float>; col += 3 * kLanes<float>) multiply_columns<Products, 3, kAdds>(p, col);
  if (p.cols - col > kLanes<float>)
    multiply_columns<Products, 2, kAdds>(p, col);
  else if (p.cols > col)
    multiply_columns<Products, 1, kAdds>(p, col);
}
inline void multiply(Pairs&, const Bf16Product& p) {
  p.adds ? multiply_in_pairs<Pairs, true>(p) : multiply_in_pairs<Pairs, false>(p);
}
inline void multiply(EmulatedPairs&, const Bf16Product& p) {
  p.adds ? multiply_in_pairs<EmulatedPairs, true>(p) : multiply_in_pairs<EmulatedPairs, false>(p);
}

// fp32 lanes rounded to bf16 (nearest, ties to even), still in the upper half of each lane.
ISOBAR_INLINE LaneBits rounded_to_bf16(Vector<float> x) {
  const auto bits = (LaneBits)x;
  return bits + 0x7fff + ((bits >> 16) & 1);
}
// The first `count` lanes, with zeros in the others.
ISOBAR_INLINE LaneBits first_lanes(LaneBits x, std::int64_t count) {
  return (LaneBits)_mm512_maskz_mov_epi32(static_cast<__mmask16>((1u << count) - 1), (__m512i)x);
}
// Two rows in the layout of B: [cols, 2].
ISOBAR_INLINE void store_interleaved(bf16* to, LaneBits even, LaneBits odd) {
  const LaneBits pair = (even >> 16) | (odd & 0xffff0000u);
  __builtin_memcpy(to, &pair, sizeof pair);
}
// One row in the layout of A.
ISOBAR_INLINE void store_row(bf16* to, LaneBits row) {
  const auto half = (__m256i)_mm512_maskz_cvtepi32_epi16(kEvery, (__m512i)(row >> 16));
  __builtin_memcpy(to, &half, sizeof half);
}

}  // namespace isobar::cpu::ISOBAR_ISA

#endif
