// Products of blocks on AMX tiles (kernels/cpu/amx_tiles.h), and an emulation of the tiles in plain vectors. The
// emulation runs on any machine with AVX-512, so that code on tiles can be tested there.
#pragma once

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/pairs.h"

#if defined(ISOBAR_ISA_IS_avx512)

namespace isobar::cpu::ISOBAR_ISA {

// The interface of AmxTiles, without AMX.
class EmulatedTiles {
 public:
  static constexpr int kDepth = AmxTiles::kDepth;

  template <int kWhich>
  void clear() {
    __builtin_memset(tiles_[kWhich], 0, sizeof tiles_[kWhich]);
  }
  template <int kWhich>
  void load(const void* rows, std::int64_t step) {
    for (int r = 0; r < kTile; ++r)
      __builtin_memcpy(tiles_[kWhich][r], static_cast<const char*>(rows) + r * step, kTileBytes);
  }
  template <int kWhich>
  void store(void* rows, std::int64_t step) {
    for (int r = 0; r < kTile; ++r)
      __builtin_memcpy(static_cast<char*>(rows) + r * step, tiles_[kWhich][r], kTileBytes);
  }
  template <int kC, int kA, int kB>
  void multiply() {
    for (int r = 0; r < kTile; ++r) {
      auto c = (Vector<float>)load_row(kC, r);
      for (int pair = 0; pair < kTile; ++pair) {
        const std::uint32_t a = tiles_[kA][r][pair];
        const LaneBits b = load_row(kB, pair);
        c += __builtin_bit_cast(float, a << 16) * (Vector<float>)(b << 16);
        c += __builtin_bit_cast(float, a & 0xffff0000u) * (Vector<float>)(b & 0xffff0000u);
      }
      __builtin_memcpy(tiles_[kC][r], &c, sizeof c);
    }
  }

 private:
  LaneBits load_row(int tile, int row) const {
    LaneBits bits;
    __builtin_memcpy(&bits, tiles_[tile][row], sizeof bits);
    return bits;
  }

  alignas(64) std::uint32_t tiles_[8][kTile][kTile];
};

// kRows x kCols tiles of C, max 2 x 2: C is in tiles 0 to 3, A in 4 and 5, B in 6 and 7.
template <int kRows, int kCols, class Tiles>
ISOBAR_INLINE void multiply_tiles(Tiles& tiles, const Bf16Product& p, std::int64_t row, std::int64_t col) {
  const bf16* a = p.a + row * p.a_step;
  const bf16* b = p.b + col * 2;
  float* c = p.c + row * p.c_step + col;
  float* c_below = c + kTile * p.c_step;
  const std::int64_t a_step = p.a_step * 2, b_step = p.b_step * 2, c_step = p.c_step * 4;  // bytes
  if (p.adds) {
    tiles.template load<0>(c, c_step);
    if constexpr (kCols == 2) tiles.template load<1>(c + kTile, c_step);
    if constexpr (kRows == 2) tiles.template load<2>(c_below, c_step);
    if constexpr (kRows == 2 && kCols == 2) tiles.template load<3>(c_below + kTile, c_step);
  } else {
    tiles.template clear<0>();
    if constexpr (kCols == 2) tiles.template clear<1>();
    if constexpr (kRows == 2) tiles.template clear<2>();
    if constexpr (kRows == 2 && kCols == 2) tiles.template clear<3>();
  }
  for (std::int64_t k = 0; k < p.depth; k += kTileDepth, a += kTileDepth, b += kTileDepth / 2 * p.b_step) {
    tiles.template load<6>(b, b_step);
    tiles.template load<4>(a, a_step);
    tiles.template multiply<0, 4, 6>();
    if constexpr (kCols == 2) {
      tiles.template load<7>(b + 2 * kTile, b_step);
      tiles.template multiply<1, 4, 7>();
    }
    if constexpr (kRows == 2) {
      tiles.template load<5>(a + kTile * p.a_step, a_step);
      tiles.template multiply<2, 5, 6>();
      if constexpr (kCols == 2) tiles.template multiply<3, 5, 7>();
    }
  }
  tiles.template store<0>(c, c_step);
  if constexpr (kCols == 2) tiles.template store<1>(c + kTile, c_step);
  if constexpr (kRows == 2) tiles.template store<2>(c_below, c_step);
  if constexpr (kRows == 2 && kCols == 2) tiles.template store<3>(c_below + kTile, c_step);
}

template <class Tiles>
void multiply(Tiles& tiles, const Bf16Product& p) {
  for (std::int64_t row = 0; row < p.rows; row += 2 * kTile) {
    const bool two_rows = p.rows - row > kTile;
    for (std::int64_t col = 0; col < p.cols; col += 2 * kTile) {
      const bool two_cols = p.cols - col > kTile;
      if (two_rows && two_cols)
        multiply_tiles<2, 2>(tiles, p, row, col);
      else if (two_rows)
        multiply_tiles<2, 1>(tiles, p, row, col);
      else if (two_cols)
        multiply_tiles<1, 2>(tiles, p, row, col);
      else
        multiply_tiles<1, 1>(tiles, p, row, col);
    }
  }
}

}  // namespace isobar::cpu::ISOBAR_ISA

#endif
