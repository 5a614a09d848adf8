// The tile registers of AMX: eight tiles of 16 rows of 64 bytes, and an instruction that adds the product of two bf16
// tiles to an fp32 tile (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: LDTILECFG, TILELOADD,
// TDPBF16PS). As assembly, so that no compiler flags are needed. Use it only if cpu::bf16_products() is
// Bf16Products::tiles.
#pragma once

#include <cstdint>

namespace isobar::cpu {

inline constexpr int kTile = 16;       // rows of a tile, and columns of an fp32 tile
inline constexpr int kTileDepth = 32;  // columns of a tile of A
inline constexpr int kTileBytes = 64;  // of a row

// While it lives, this thread can use the tiles, all of size 16 x 64 bytes. Two of these objects may not nest.
class AmxTiles {
 public:
  static constexpr int kDepth = kTileDepth;  // the depth of a product is a multiple of it

  __attribute__((always_inline)) AmxTiles() {
    struct alignas(64) Config {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {};
      std::uint8_t rows[16] = {};
    } config;
    for (int tile = 0; tile < 8; ++tile) {
      config.row_bytes[tile] = kTileBytes;
      config.rows[tile] = kTile;
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  __attribute__((always_inline)) ~AmxTiles() { asm volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int kWhich>
  __attribute__((always_inline)) void clear() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kWhich));
  }
  // 16 rows, `step` bytes apart.
  template <int kWhich>
  __attribute__((always_inline)) void load(const void* rows, std::int64_t step) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kWhich), "r"(rows), "r"(step) : "memory");
  }
  template <int kWhich>
  __attribute__((always_inline)) void store(void* rows, std::int64_t step) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kWhich), "r"(rows), "r"(step) : "memory");
  }
  // C [16, 16] fp32 += A [16, 32] bf16 · B [32, 16] bf16, which is stored [16, 16, 2]: rows 2r and 2r + 1 interleaved.
  template <int kC, int kA, int kB>
  __attribute__((always_inline)) void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

}  // namespace isobar::cpu
