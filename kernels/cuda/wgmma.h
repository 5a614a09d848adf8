// The tensor-core product of a warpgroup, four warps (compute capability 9.0 and later).
//
//   D[64, 8·kTiles] = A[64, 16] · B[16, 8·kTiles], or D += A · B
//   D   warp w of the four holds rows 16w to 16w + 15, in the layout of mma.sync (kernels/cuda/mma.h): with
//       g = lane / 4, t = lane % 4, d[n][r] is row 16w + g + 8·(r / 2), column 8n + 2t + r % 2
//   A   in registers, like mma.sync's A of those rows; or a tile in shared memory whose rows are A's
//   B   a tile in shared memory: its rows are the columns of B, or, transposed, the rows of B
//
// A tile is one that TMA has swizzled (kernels/cuda/tensor_map.h): rows of 64 elements, 1024-byte aligned. With more
// than 64 elements a row, it is several such tiles one after the other.
//
// Products run asynchronously to the warpgroup that issues them. Around them:
//     wgmma_fence();                  registers written before are visible to the products that follow
//     wgmma(...); wgmma(...);
//     wgmma_commit();                 they are a group
//     wgmma_wait<kInFlight>(d, ...);  all but the last kInFlight groups are done; d, ... are the registers they used
// Before the wait, D and an A in registers must not be read or written, and the tiles must not be written.
#pragma once

#include "kernels/cuda/convert.h"
#include "kernels/cuda/tensor_map.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

inline constexpr int kWarpgroupSize = 128;

// The descriptor of a tile, from a row on that is a multiple of 8 (PTX ISA, "Matrix descriptor"): address, distance of
// consecutive tiles (for a transposed B), distance of every eighth row, swizzle of 128 bytes. Addresses are in 16
// bytes.
__device__ __forceinline__ std::uint64_t tile_descriptor(const void* tile, int bytes_between_tiles) {
#if defined(ISOBAR_EMULATE)
  const std::uint64_t address = shared_address(tile);
#else
  const auto address = static_cast<std::uint64_t>(__cvta_generic_to_shared(tile));
#endif
  constexpr std::uint64_t kEightRows = 8 * 128 / 16, kSwizzle128 = 1;
  return (address & 0x3ffff) >> 4 | static_cast<std::uint64_t>(bytes_between_tiles / 16) << 16 | kEightRows << 32 |
         kSwizzle128 << 62;
}
// The same, advanced by `bytes`: 32 for the next 16 elements of rows, 2048 for the next 16 rows.
__device__ __forceinline__ std::uint64_t advanced(std::uint64_t descriptor, int bytes) {
  return descriptor + static_cast<std::uint64_t>(bytes / 16);
}

#if defined(ISOBAR_EMULATE)

template <class T, bool kAdds, bool kTransposedB, int kTiles>
void wgmma(float (&d)[kTiles][4], std::uint64_t a, std::uint64_t b, ISOBAR_SITE) {
  issue_product({d[0], 8 * kTiles, kAdds, std::is_same_v<T, bf16>, nullptr, a, b, false, kTransposedB}, site);
}
template <class T, bool kAdds, bool kTransposedB, int kTiles>
void wgmma(float (&d)[kTiles][4], const std::uint32_t (&a)[4], std::uint64_t b, ISOBAR_SITE) {
  issue_product({d[0], 8 * kTiles, kAdds, std::is_same_v<T, bf16>, a, 0, b, false, kTransposedB}, site);
}
inline void wgmma_fence() {
  fence_products();
}
inline void wgmma_commit() {
  commit_products();
}
// The registers are arguments only for the compiler.
template <class Registers>
void settle(const Registers&) {}
template <int kInFlight, class... Registers>
void wgmma_wait(const Registers&...) {
  wait_for_products(kInFlight, std::source_location::current());
}

#else

template <class T, int kTiles, bool kAdds, bool kTransposedB>
struct Wgmma;

#define ISOBAR_TILE(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define ISOBAR_WGMMA_32_D "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define ISOBAR_WGMMA_48_D                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23"
#define ISOBAR_WGMMA_64_D                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ISOBAR_WGMMA_128_D                                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define ISOBAR_WGMMA_32_OUT ISOBAR_TILE(0), ISOBAR_TILE(1), ISOBAR_TILE(2), ISOBAR_TILE(3)
#define ISOBAR_WGMMA_48_OUT \
  ISOBAR_TILE(0), ISOBAR_TILE(1), ISOBAR_TILE(2), ISOBAR_TILE(3), ISOBAR_TILE(4), ISOBAR_TILE(5)
#define ISOBAR_WGMMA_64_OUT                                                                                       \
  ISOBAR_TILE(0), ISOBAR_TILE(1), ISOBAR_TILE(2), ISOBAR_TILE(3), ISOBAR_TILE(4), ISOBAR_TILE(5), ISOBAR_TILE(6), \
      ISOBAR_TILE(7)
#define ISOBAR_WGMMA_128_OUT                                                                                      \
  ISOBAR_TILE(0), ISOBAR_TILE(1), ISOBAR_TILE(2), ISOBAR_TILE(3), ISOBAR_TILE(4), ISOBAR_TILE(5), ISOBAR_TILE(6), \
      ISOBAR_TILE(7), ISOBAR_TILE(8), ISOBAR_TILE(9), ISOBAR_TILE(10), ISOBAR_TILE(11), ISOBAR_TILE(12),          \
      ISOBAR_TILE(13), ISOBAR_TILE(14), ISOBAR_TILE(15)

#define ISOBAR_WGMMA(T, type, columns, A0, A1, A2, A3, B, ADDS, TB)                                                 \
  template <bool kAdds, bool kTransposedB>                                                                          \
  struct Wgmma<T, columns / 8, kAdds, kTransposedB> {                                                               \
    static __device__ __forceinline__ void multiply(float (&d)[columns / 8][4], std::uint64_t a, std::uint64_t b) { \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" A2                                                    \
                   ", 0;\n"                                                                                         \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type                            \
                   " {" ISOBAR_WGMMA_##columns##_D "}, %" A0 ", %" A1 ", adds, 1, 1, 0, %" A3 ";\n}"                \
                   : ISOBAR_WGMMA_##columns##_OUT                                                                   \
                   : "l"(a), "l"(b), "n"(kAdds ? 1 : 0), "n"(kTransposedB ? 1 : 0));                                \
    }                                                                                                               \
    static __device__ __forceinline__ void multiply(float (&d)[columns / 8][4], const std::uint32_t (&a)[4],        \
                                                    std::uint64_t b) {                                              \
      asm volatile(                                                                                                 \
          "{\n.reg .pred adds;\nsetp.ne.b32 adds, %" ADDS                                                           \
          ", 0;\n"                                                                                                  \
          "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" ISOBAR_WGMMA_##columns##_D     \
          "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B ", adds, 1, 1, %" TB ";\n}"                                \
          : ISOBAR_WGMMA_##columns##_OUT                                                                            \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdds ? 1 : 0), "n"(kTransposedB ? 1 : 0));     \
    }                                                                                                               \
  };

ISOBAR_WGMMA(bf16, "bf16", 32, "16", "17", "18", "19", "20", "21", "22")
ISOBAR_WGMMA(fp16, "f16", 32, "16", "17", "18", "19", "20", "21", "22")
ISOBAR_WGMMA(bf16, "bf16", 48, "24", "25", "26", "27", "28", "29", "30")
ISOBAR_WGMMA(fp16, "f16", 48, "24", "25", "26", "27", "28", "29", "30")
ISOBAR_WGMMA(bf16, "bf16", 64, "32", "33", "34", "35", "36", "37", "38")
ISOBAR_WGMMA(fp16, "f16", 64, "32", "33", "34", "35", "36", "37", "38")
ISOBAR_WGMMA(bf16, "bf16", 128, "64", "65", "66", "67", "68", "69", "70")
ISOBAR_WGMMA(fp16, "f16", 128, "64", "65", "66", "67", "68", "69", "70")

#undef ISOBAR_WGMMA
#undef ISOBAR_TILE
#undef ISOBAR_WGMMA_32_D
#undef ISOBAR_WGMMA_48_D
#undef ISOBAR_WGMMA_64_D
#undef ISOBAR_WGMMA_128_D
#undef ISOBAR_WGMMA_32_OUT
#undef ISOBAR_WGMMA_48_OUT
#undef ISOBAR_WGMMA_64_OUT
#undef ISOBAR_WGMMA_128_OUT

template <class T, bool kAdds, bool kTransposedB, int kTiles, class A>
__device__ __forceinline__ void wgmma(float (&d)[kTiles][4], const A& a, std::uint64_t b) {
  Wgmma<T, kTiles, kAdds, kTransposedB>::multiply(d, a, b);
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// The compiler does not know that products change registers asynchronously, and may move waits. The named registers are
// computed before this point, and not read or reused before it.
template <int kTiles>
__device__ __forceinline__ void settle(float (&d)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int r = 0; r < 4; ++r) asm volatile("" : "+f"(d[n][r])::"memory");
}
template <int kSteps>
__device__ __forceinline__ void settle(std::uint32_t (&a)[kSteps][4]) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[k][i])::"memory");
}

template <int kInFlight, class... Registers>
__device__ __forceinline__ void wgmma_wait(Registers&... registers) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kInFlight) : "memory");
  (settle(registers), ...);
}

#endif

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
