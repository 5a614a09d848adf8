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

// The number of blocks for `pieces` of work, if a multiprocessor holds `a_multiprocessor` of them; max `most`.
inline int resident_blocks(std::int64_t pieces, int a_multiprocessor, std::int64_t most = 1 << 16) {
  const std::int64_t resident = std::int64_t{multiprocessors()} * a_multiprocessor;
  return blocks_for(pieces, 1, grid_limit(resident < most ? resident : most));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
