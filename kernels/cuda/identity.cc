#include "kernels/cuda/identity.h"

#include <cstdio>

#include "kernels/common/check.h"

#if ISOBAR_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace isobar::gpu {

#if ISOBAR_HAS_CUDA

std::string uuid_of(int index) {
  cudaDeviceProp properties = {};
  const cudaError_t error = cudaGetDeviceProperties(&properties, index);
  ISOBAR_CHECK(error == cudaSuccess, "GPU ", index, ": ", cudaGetErrorString(error));
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(properties.uuid.bytes[i]));
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

#else

std::string uuid_of(int index) {
  throw_error("GPU ", index, ": this isobar was built without CUDA");
}

#endif

}  // namespace isobar::gpu
