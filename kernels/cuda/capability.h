// The compute capability, by which host code chooses kernels.
#pragma once

#include "kernels/cuda/platform.h"

#if defined(ISOBAR_EMULATE) && !defined(ISOBAR_VIRTUAL_GPU)
#include "kernels/emulator/devices.h"
#else
#include "kernels/common/check.h"
#endif

namespace isobar::ISOBAR_CUDA_NAMESPACE {

// For the current device, times ten: 80 for an A100, 90 for an H100.
inline int compute_capability() {
#if defined(ISOBAR_EMULATE) && !defined(ISOBAR_VIRTUAL_GPU)
  return capability();
#else
  const auto check = [](cudaError_t status) {
    ISOBAR_CHECK(status == cudaSuccess,
                 "the compute capability of the GPU cannot be had: ", cudaGetErrorString(status));
  };
  int device = 0, major = 0, minor = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
#endif
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
