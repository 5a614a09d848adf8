// Grids of the size of the device: as many blocks as its multiprocessors hold at once. Each block takes several pieces
// of the work.
#pragma once

#include <cstdint>

#include "kernels/common/math.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

// Of the current device; a small number in the emulator.
inline int multiprocessors() {
#if defined(ISOBAR_EMULATE) && !defined(ISOBAR_VIRTUAL_GPU)
  return 4;
#else
  const auto check = [](cudaError_t status) {
    ISOBAR_CHECK(status == cudaSuccess, "the size of the GPU cannot be had: ", cudaGetErrorString(status));
  };
  int device = 0, count = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
#endif
}

// The number of blocks for `pieces` of work, if a multiprocessor holds `per_multiprocessor` of them; max `most`.
inline int resident_blocks(std::int64_t pieces, int per_multiprocessor, std::int64_t max_blocks = 1 << 16) {
  const std::int64_t resident = std::int64_t{multiprocessors()} * per_multiprocessor;
  return blocks_for(pieces, 1, grid_limit(resident < max_blocks ? resident : max_blocks));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
