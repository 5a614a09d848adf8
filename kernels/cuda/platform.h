// The device API of a .cu file: CUDA itself under nvcc, the emulator (kernels/emulator/emulator.h) under the host
// compiler with -DISOBAR_EMULATE. With -DISOBAR_VIRTUAL_GPU in addition, kernels are launched as on a GPU, through
// functions with the names of CUDA's runtime (docs/cuda_on_the_cpu.md). All device code is in namespace
// isobar::ISOBAR_CUDA_NAMESPACE, so that the two builds of one kernel never share a symbol.
//
// Rules for kernel sources: launch only with launch() (kernels/cuda/launch.h); declare dynamic shared memory only with
// ISOBAR_DYNAMIC_SHARED; write inline PTX only in wrappers in kernels/cuda/; write the alignment of shared arrays as
// __align__(n).
#pragma once

#if defined(ISOBAR_EMULATE) && defined(ISOBAR_VIRTUAL_GPU)

#define ISOBAR_CUDA_NAMESPACE cuda
#include <cuda_runtime.h>

#include "kernels/emulator/emulator.h"
namespace isobar::cuda {
using namespace ::isobar::emulator;
}

#elif defined(ISOBAR_EMULATE)

#define ISOBAR_CUDA_NAMESPACE emulator
#include "kernels/emulator/emulator.h"

#else

#define ISOBAR_CUDA_NAMESPACE cuda
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// Declares `T* name`, the block's dynamic shared memory, 128-byte aligned.
#define ISOBAR_DYNAMIC_SHARED(T, name)                                    \
  extern __shared__ __align__(128) unsigned char isobar_dynamic_shared[]; \
  T* name = reinterpret_cast<T*>(isobar_dynamic_shared)

#endif

namespace isobar::ISOBAR_CUDA_NAMESPACE {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
