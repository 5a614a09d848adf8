// Tiles of tensors with TMA, the copy engine of a multiprocessor (compute capability 9.0 and later). The host describes
// a tensor and the box of a tile; one thread starts the copy of a tile; an mbarrier reports its end.
//
// In a swizzled tile, whose rows are 128 bytes, the 16-byte chunks of row r are permuted: chunk c is at c ^ r % 8, as
// wgmma requires (kernels/cuda/wgmma.h). Elements of a box that are outside its tensor become zeros.
//
// A copy of contiguous bytes needs no map.
#pragma once

#include "kernels/cuda/mbarrier.h"

#if !defined(ISOBAR_EMULATE) || defined(ISOBAR_VIRTUAL_GPU)
#include <cuda.h>
#endif

namespace isobar::ISOBAR_CUDA_NAMESPACE {

// A tensor [size[3], size[2], size[1], size[0]] of 16-bit elements, 16-byte aligned. Strides of all dimensions but the
// innermost, in bytes, are multiples of 16. The box has at most 256 elements a side and is swizzled: 64 elements a row.
struct TiledTensor {
  const void* base;
  std::uint64_t size[4];
  std::uint64_t stride[3];
  std::uint32_t box[4];
};

#if defined(ISOBAR_EMULATE) && !defined(ISOBAR_VIRTUAL_GPU)
using emulator::TensorMap;
#else
using TensorMap = CUtensorMap;
#endif

// The argument of a kernel, as `const __grid_constant__ TensorMap`. Throws Error if TMA cannot read such a tensor.
TensorMap tensor_map_of(const TiledTensor& tensor);

// Dynamic shared memory as bytes, aligned for swizzled tiles.
#if defined(ISOBAR_EMULATE)
#define __grid_constant__
#define ISOBAR_SWIZZLED_SHARED(name) unsigned char* name = ::isobar::emulator::block.dynamic_shared
#else
#define ISOBAR_SWIZZLED_SHARED(name)                                        \
  extern __shared__ __align__(1024) unsigned char isobar_swizzled_shared[]; \
  unsigned char* name = isobar_swizzled_shared
#endif

#if defined(ISOBAR_EMULATE)

inline void tma_load(void* tile, const TensorMap& map, Mbarrier& mbarrier, int c0, int c1, int c2, int c3,
                     ISOBAR_SITE) {
  const int coordinates[] = {c0, c1, c2, c3};
  load_tile(tile, &map, mbarrier.number(), coordinates, 4, site);
}
inline void bulk_load(void* to, const void* from, int bytes, Mbarrier& mbarrier, ISOBAR_SITE) {
  load_bytes_in_bulk(to, from, bytes, mbarrier.word, site);
}

#else

// Starts the copy of the box whose first element has these coordinates. The mbarrier must expect its bytes, zeros
// included. Called by one thread.
__device__ __forceinline__ void tma_load(void* tile, const TensorMap& map, Mbarrier& mbarrier, int c0, int c1, int c2,
                                         int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(tile))),
      "l"(&map), "r"(mbarrier.address()), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// Starts the copy of bytes from global to shared memory, both 16-byte aligned; the number is a multiple of 16. The
// mbarrier must expect them. Called by one thread.
__device__ __forceinline__ void bulk_load(void* to, const void* from, int bytes, Mbarrier& mbarrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(mbarrier.address())
               : "memory");
}

#endif

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
