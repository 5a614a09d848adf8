// What the tests on the virtual GPU share.
#pragma once

#include <cuda_runtime_api.h>
#include "kernels/common/device.h"

namespace isobar {

inline constexpr Device kGpu{DeviceKind::cuda};

// A misuse breaks the context, as on a GPU: each case begins and ends with a fresh one.
struct FreshContext {
  FreshContext() { cudaDeviceReset(); }
  ~FreshContext() { cudaDeviceReset(); }
};

}  // namespace isobar
